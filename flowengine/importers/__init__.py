"""Brings flows of other products along: `flowengine import`.

A format is one module and one line of `FORMATS` in `flowengine.importers.formats`. The module has a function
`find`, which says which files of a folder it can read, by their content, and a function `read`, which makes an
`ImportedProject` (`flowengine.importers.form`) of one. `flowengine.importers.project_writer` writes
that, the same for all formats.

    def find(tree: SourceTree, files: Sequence[str]) -> list[str]: ...
    def read(tree: SourceTree, file: str) -> ImportedProject: ...

Whatever is read is hostile until proven otherwise: it is parsed with bounds and never imported, evaluated or run.
"""

from flowengine.core.lazy_face import open_face

__getattr__, __dir__ = open_face(__name__, __file__)
