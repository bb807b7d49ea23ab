"""Data sets to measure retrieval by, all made here or from Python's own library: nothing comes from the network.

Docstrings as queries for the code they were taken from, short words of three languages, and a long conversation of
an agent with its tools.
"""

from __future__ import annotations

import ast
import random
import re
import sysconfig
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

__all__ = ["SHORT_WORDS", "CodeQuery", "Transcript", "code_queries", "short_word_texts", "transcript"]

LEFT_OUT = frozenset({"__pycache__", "idle_test", "idlelib", "lib2to3", "site-packages", "test", "tests"})


# --- code ---------------------------------------------------------------------------------------------


class CodeQuery(NamedTuple):
    """A docstring, and where it was."""

    path: str
    name: str
    """Qualified within its file."""
    text: str

    @property
    def beginning(self) -> str:
        """Its first paragraph."""
        return " ".join(self.text.split("\n\n")[0].split())


def code_queries(folder: Path, packages: Sequence[str] = ()) -> list[CodeQuery]:
    """Write Python's library into a folder without any docstring; the docstrings, as they were.

    `packages`: only these, by their names; none: all of them, their tests left out. A docstring is a query when no
    other begins as it does, and when it begins with six words at least.
    """
    queries: list[CodeQuery] = []
    library = Path(sysconfig.get_path("stdlib"))
    for path in _sources(library, packages):
        relative = path.relative_to(library).as_posix()
        try:
            source = path.read_text("utf-8")
            tree = ast.parse(source)
        except (SyntaxError, UnicodeDecodeError):
            continue
        queries += [CodeQuery(relative, name, text) for name, text in _docstrings(tree, "")]
        target = folder / relative
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(_stripped(source, tree), "utf-8")
    beginnings = Counter(query.beginning for query in queries)
    return [each for each in queries if beginnings[each.beginning] == 1 and len(each.beginning.split()) >= 6]


def _sources(library: Path, packages: Sequence[str]) -> Iterator[Path]:
    for path in sorted(library.rglob("*.py")):
        parts = path.relative_to(library).parts
        if not LEFT_OUT & set(parts) and (not packages or parts[0].removesuffix(".py") in packages):
            yield path


def _docstrings(node: ast.AST, scope: str) -> Iterator[tuple[str, str]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            name = f"{scope}{child.name}"
            if text := ast.get_docstring(child):
                yield name, text
            if isinstance(child, ast.ClassDef):
                yield from _docstrings(child, f"{name}.")
        elif isinstance(child, ast.If | ast.Try | ast.With | ast.ExceptHandler):
            yield from _docstrings(child, scope)


def _stripped(source: str, tree: ast.AST) -> str:
    """The source with empty strings for docstrings, its lines where they were."""
    lines = source.splitlines()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Module) and node.body:
            first = node.body[0]
            if (
                isinstance(first, ast.Expr)
                and isinstance(first.value, ast.Constant)
                and isinstance(first.value.value, str)
            ):
                indent = lines[first.lineno - 1][: first.col_offset]
                lines[first.lineno - 1 : first.end_lineno] = [""] * (
                    (first.end_lineno or first.lineno) - first.lineno + 1
                )
                lines[first.lineno - 1] = f'{indent}""' if not indent.strip() else indent + '""'
    return "\n".join(lines) + "\n"


# --- short words ----------------------------------------------------------------------------------------

SHORT_WORDS = {
    "ja": {
        "茶": "毎朝、祖母はお茶を飲んでから散歩に出かける。",
        "駅": "新しい駅は町の北側にできる予定だ。",
        "猫": "隣の家の猫が屋根の上で眠っている。",
        "傘": "雨が降りそうなので傘を持って行く。",
        "寿司": "週末は家族で寿司を食べに行った。",
        "会議": "午後の会議は三時から始まります。",
        "請求": "先月分の請求書をまだ受け取っていない。",
        "返品": "商品の返品は到着から七日以内に限る。",
        "桜": "公園の桜が満開になった。",
        "りんご": "青森から届いたりんごを分けた。",
        "メール": "確認のメールを送信しました。",
        "予約": "窓側の席を予約したい。",
        "地震": "昨夜、小さな地震があった。",
        "ログ": "障害の原因をログから調べる。",
        "図書館": "図書館は月曜日に休館する。",
        "パン": "焼きたてのパンの香りがする。",
        "薬": "食後に薬を二錠飲んでください。",
        "契約": "来年度の契約を更新する手続きが必要だ。",
        "湖": "湖のほとりで写真を撮った。",
        "サーバー": "夜間にサーバーを再起動した。",
    },
    "zh": {
        "茶": "爷爷每天下午都要喝一壶茶。",
        "车": "他把车停在楼下了。",
        "雨": "天气预报说明天有雨。",
        "书": "桌上放着三本书。",
        "发票": "公司需要开具增值税发票。",
        "退款": "退款会在五个工作日内到账。",
        "会议": "上午的会议推迟到周五。",
        "地铁": "坐地铁去机场最方便。",
        "密码": "忘记密码时请点击这里。",
        "快递": "快递已经放在门口。",
        "医院": "附近新开了一家医院。",
        "苹果": "这家店的苹果又脆又甜。",
        "合同": "双方昨天签署了合同。",
        "数据库": "数据库每晚自动备份。",
        "接口": "这个接口返回错误代码。",
        "山": "周末一起去爬山吧。",
        "鱼": "池塘里的鱼游来游去。",
        "考试": "期末考试定在六月。",
        "机票": "提前购买机票可以省钱。",
        "咖啡": "加班的时候离不开咖啡。",
    },
    "ko": {
        "차": "할머니는 매일 아침 따뜻한 차를 마신다.",
        "비": "내일은 전국에 비가 내리겠습니다.",
        "책": "책상 위에 책이 놓여 있다.",
        "회의": "오늘 회의는 오후로 미뤄졌다.",
        "환불": "환불은 일주일 안에 처리됩니다.",
        "주문": "주문하신 상품이 출고되었습니다.",
        "지하철": "지하철로 공항까지 한 시간 걸린다.",
        "병원": "아이를 데리고 병원에 다녀왔다.",
        "사과": "시장에서 사과를 한 상자 샀다.",
        "계약": "새로운 계약서에 서명했다.",
        "서버": "밤사이 서버가 두 번 멈췄다.",
        "예약": "창가 자리로 예약했습니다.",
        "날씨": "요즘 날씨가 무척 덥다.",
        "커피": "커피 한 잔으로 하루를 시작한다.",
        "학교": "동생은 학교에서 축구를 한다.",
        "약": "식사 후에 약을 드세요.",
        "바다": "여름에는 바다로 여행을 간다.",
        "시험": "다음 주에 중요한 시험이 있다.",
        "오류": "로그인할 때 오류가 발생한다.",
        "고양이": "고양이가 담장 위를 걸어간다.",
    },
}
"""Language → word → a text that holds it."""


def short_word_texts() -> dict[str, str]:
    """Id (`ja:茶`) → text, of all languages."""
    return {f"{language}:{word}": text for language, words in SHORT_WORDS.items() for word, text in words.items()}


# --- a conversation with tools ------------------------------------------------------------------------------


class Transcript(NamedTuple):
    """What an agent and its tools said, a call and its result to a turn, and the paths that they spoke of."""

    turns: Sequence[tuple[str, str, str]]
    """(what the agent said and called, what the tool said, the name of the tool)"""
    paths: frozenset[str]

    @property
    def text(self) -> str:
        return "\n\n".join(f"Assistant: {said}\n\nTool ({tool}): {result}" for said, result, tool in self.turns)


def transcript(turns: int = 100, seed: int = 1) -> Transcript:
    """A coding agent at work: it reads, searches, tests and edits."""
    chance = random.Random(seed)
    areas = ("billing", "orders", "users", "search", "mail", "reports", "auth", "catalog")
    paths = [f"src/{area}/{name}_{number}.py" for area in areas for number, name in enumerate(_MODULES)]
    chance.shuffle(paths)
    made: list[tuple[str, str, str]] = []
    used: set[str] = set()
    for turn in range(turns):
        path, other = paths[turn % len(paths)], paths[(turn * 7 + 3) % len(paths)]
        used |= {path, other}
        made.append((_read, _search, _run, _edit)[turn % 4](chance, turn, path, other))
    return Transcript(made, frozenset(used))


_MODULES = ("models", "views", "service", "tasks", "client", "schema", "rules", "cache")
_WORDS = re.findall(
    r"\w+",
    "amount customer total invoice retry timeout index query result token session limit price order status user mail "
    "report page filter value state event handler record field option payload",
)


def _code(chance: random.Random, lines: int) -> str:
    def line() -> str:
        one, two, three = chance.sample(_WORDS, 3)
        form = chance.choice(("{0} = self.{1}({2})", "if {0} is None: return {1}", "for {0} in {1}: {2}.append({0})"))
        return "    " + form.format(one, two, three)

    return "\n".join([f"def {chance.choice(_WORDS)}_{chance.choice(_WORDS)}(self):", *(line() for _ in range(lines))])


def _read(chance: random.Random, turn: int, path: str, other: str) -> tuple[str, str, str]:
    code = "\n\n".join(_code(chance, 9) for _ in range(4))
    return f"I look at {path}, which {other} imports.", f"{path}\n{code}", "read_file"


def _search(chance: random.Random, turn: int, path: str, other: str) -> tuple[str, str, str]:
    word = chance.choice(_WORDS)
    hits = (f"{chance.choice((path, other))}:{chance.randint(1, 400)}: {_code(chance, 1).strip()}" for _ in range(18))
    return f"Where is `{word}` used beside {other}?", f"{path}\n" + "\n".join(hits), "search"


def _run(chance: random.Random, turn: int, path: str, other: str) -> tuple[str, str, str]:
    passed = "\n".join(
        f"tests/test_{chance.choice(_MODULES)}.py::test_{chance.choice(_WORDS)} PASSED" for _ in range(15)
    )
    failed = f'File "{path}", line {turn + 10}, in run\nValueError: {chance.choice(_WORDS)} {turn} is not known'
    return f"I run the tests that touch {other}.", f"{passed}\n{failed}\n1 failed, 15 passed", "run_tests"


def _edit(chance: random.Random, turn: int, path: str, other: str) -> tuple[str, str, str]:
    return (
        f"I change {path} so that it agrees with {other}.",
        f"--- {path}\n+++ {path}\n" + _code(chance, 12).replace("    ", "+   "),
        "edit_file",
    )
