from __future__ import annotations


class Project: ...
