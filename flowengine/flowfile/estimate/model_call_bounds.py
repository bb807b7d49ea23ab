"""Computes how often a node asks a model in one run of it, and how long its questions and answers can become.

It reads the file alone. The defaults of agents are theirs, and so are the texts that they add of their own.
What a prompt may hold that the file does not show (results of tools, files, memories, earlier exchanges)
has no bound but the model's window.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import Any, Final

from flowengine.agents import CallSettings, Improvement, Tooling
from flowengine.core import find_files, is_map, load_messages
from flowengine.flowfile.analysis import NodePath, edges_of, level_of, nodes_of, options_of, retry_of, settings_of
from flowengine.flowfile.checks import attached_in_node
from flowengine.flowfile.estimate.cost_bound import NONE, Most, most_of_calls
from flowengine.flowfile.estimate.output_sizes import OutputSizes, foreseen_value
from flowengine.flowfile.estimate.text_sizes import NOTHING, UNKNOWN, Size
from flowengine.flowfile.kinds.agent_kind import AgentNodeSpec
from flowengine.flowfile.kinds.evaluation_kind import EvaluationNodeSpec
from flowengine.flowfile.kinds.routing_kind import RoutingNodeSpec
from flowengine.flowfile.schema import AgentSpec, Evaluate, FlowSpec, Improve, NodeSpec
from flowengine.models import (
    IMAGES,
    KnownModel,
    ModelFacts,
    count_tokens,
    image_tokens,
    is_stand_in,
    most_file_tokens,
    normalize_options,
)

_DEFAULT_RETRIES: Final = CallSettings().max_retries
_DEFAULT_ROUNDS: Final = Tooling().max_rounds
_DEFAULT_IMPROVEMENTS: Final = Improvement().max_iterations
_REMARK_TOKENS: Final = 800
"""Tokens of what is told to a model about an answer that does not fit its shape."""
_JUDGEMENT_TOKENS: Final = 400
"""Tokens of the schemas that judges and routers answer in."""
_WITH_TOOLS: Final = ("tools", "mcp_servers", "contexts", "skills")
"""Settings that may offer tools."""
_UNBOUNDED_KEYS: Final = (*_WITH_TOOLS, "context", "memory", "history_size")
"""Settings that bring into a prompt what the file does not show."""

_AskingSpec = AgentNodeSpec | EvaluationNodeSpec | RoutingNodeSpec


class Asking:
    """The calls of one flow's nodes. `sizes` are those of its values.

    `model` stands in for every model that the file names. `is_capped`: a limit on cost or tokens holds, so that
    answers without a bound get one.
    """

    def __init__(self, spec: FlowSpec, facts: ModelFacts, model: str | None = None, *, is_capped: bool = False) -> None:
        self._spec = spec
        self._facts = facts
        self._model = model
        self._is_capped = is_capped

    def answer(self, path: NodePath) -> int | None:
        """Returns the maximum length of the answer of a node's model."""
        node = level_of(self._spec, path[:-1])[path[-1]]
        if not isinstance(node, _AskingSpec):
            return None
        settings = settings_of(self._spec, node)
        return self._longest(self._models(settings), settings.max_tokens)

    def most(self, path: NodePath, node: NodeSpec, sizes: OutputSizes) -> Most:
        """Returns the maximum usage of one run of a node, including its retries; zero for containers and functions."""
        if isinstance(node, AgentNodeSpec):
            once = self._agent(path, node, sizes)
        elif isinstance(node, RoutingNodeSpec) or (isinstance(node, EvaluationNodeSpec) and node.call is None):
            once = self._judge_node(path, node, sizes)
        else:
            return NONE
        retry = retry_of(self._spec, node)
        return once.times(1 if retry is None else retry.attempts)

    def attempts(self, node: NodeSpec) -> int:
        """Returns how often one call may be sent: where no answer comes, it may be billed, and is repeated."""
        if not isinstance(node, _AskingSpec):
            return 1
        settings = settings_of(self._spec, node)
        return len(self._models(settings)) * (1 + _count_retries(settings))

    # --- agents -----------------------------------------------------------------------------------

    def _agent(self, path: NodePath, node: AgentNodeSpec, sizes: OutputSizes) -> Most:
        settings = settings_of(self._spec, node)
        judging = node.improve or node.evaluate or settings.improve or settings.evaluate
        files = self._bound_attachments(node, self._models(settings), sizes)
        prompt, answer = self._prompt(path, node, sizes).and_(files), Size(self.answer(path))
        drafts, added, total = 1, NOTHING, self._sources(settings)
        if judging is not None:
            models = self._models(settings, judging.model)
            judgement = Size(self._longest(models, None))
            drafts += _count_improvements(judging)
            texts = (judging.instructions or "", *judging.criteria, *judging.criteria.values())
            question = self._size_of_texts(texts, path, sizes).and_(prompt).and_(answer)
            total = total.and_(_bound_structured(drafts, question, judgement, models, settings))
            added = answer.and_(judgement) if drafts > 1 else NOTHING
        if (routing := settings.routing) is not None:
            models = self._models(settings)
            texts = (routing.instruction, *_list_descriptions(routing.routes))
            question = self._size_of_texts(texts, path, sizes).and_(prompt).and_(answer)
            total = total.and_(_bound_structured(1, question, Size(self._longest(models, None)), models, settings))
        return total.and_(self._bound_drafts(drafts, prompt.and_(added), answer, settings))

    def _bound_drafts(self, drafts: int, question: Size, answer: Size, settings: AgentSpec) -> Most:
        """All generations: each may be corrected, and each may have its rounds of tools."""
        rounds = (settings.max_tool_rounds or _DEFAULT_ROUNDS) if _has_any(settings, _WITH_TOOLS) else 0
        calls = min(2, 1 + _count_retries(settings))
        if settings.output is not None:
            calls = 1 + _count_retries(settings)
            question = question.and_(answer).and_(Size(_REMARK_TOKENS))
        number, models, is_cached = drafts * (calls + rounds), self._models(settings), _is_cached(settings)
        return most_of_calls(number, _add_slack(question), answer.tokens, models, is_cached=is_cached)

    def _sources(self, settings: AgentSpec) -> Most:
        """Context providers that have a model of their own ask it once in a run of the node; those with embeddings
        as often as there are batches of documents, which is not known before."""
        total = NONE
        for entry in settings.context or ():
            for model in list_named_models(entry, "model"):
                models = [self._facts.of(self._model or model)]
                total = total.and_(most_of_calls(1, None, self._longest(models, None), models))
            for model in () if self._is_offline else list_named_models(entry, "embedding"):
                total = total.and_(most_of_calls(1, None, 0, [self._facts.of(model)]).times(None))
        return total

    @property
    def _is_offline(self) -> bool:
        return self._model is not None and is_stand_in(self._facts.of(self._model).provider)

    def _prompt(self, path: NodePath, node: AgentNodeSpec, sizes: OutputSizes) -> Size:
        """The first prompt of an agent node."""
        settings = settings_of(self._spec, node)
        if settings.context_budget is not None and not _has_any(settings, _WITH_TOOLS):
            return Size(settings.context_budget).and_(_measure_schema(settings.output))
        if _has_any(settings, _UNBOUNDED_KEYS):
            return UNKNOWN
        texts = (settings.system_message or "", settings.instructions or "", node.prompt or "")
        size = (
            self._size_of_texts(texts, path, sizes)
            .and_(_measure_fixed_texts(settings.locale))
            .and_(_measure_schema(settings.output))
        )
        return size if node.prompt is not None else size.and_(sizes.size_received(path[:-1], path[-1]))

    # --- judges and routers -----------------------------------------------------------------------

    def _judge_node(self, path: NodePath, node: EvaluationNodeSpec | RoutingNodeSpec, sizes: OutputSizes) -> Most:
        settings = settings_of(self._spec, node)
        models = self._models(settings)
        if isinstance(node, RoutingNodeSpec):
            texts = (node.instruction, *_list_descriptions(node.routes))
        else:
            texts = (node.instructions or "", *node.criteria, *node.criteria.values())
        question = (
            self._size_of_texts(texts, path, sizes)
            .and_(_measure_fixed_texts(settings.locale))
            .and_(self._subject(path, node, sizes))
            .and_(self._bound_attachments(node, models, sizes))
        )
        return _bound_structured(1, question, Size(self.answer(path)), models, settings)

    def _subject(self, path: NodePath, node: EvaluationNodeSpec | RoutingNodeSpec, sizes: OutputSizes) -> Size:
        """Returns the judged text: the target, or the generation of an earlier agent with its prompt."""
        level, name = path[:-1], path[-1]
        prompts, answers = NOTHING, NOTHING
        agents = list(self._agents_before(path))
        for each, agent in agents:
            prompts = prompts.either(self._prompt(each, agent, sizes))
            answers = answers.either(Size(self.answer(each)))
        if node.target is not None:
            answers = sizes.template(node.target, level, name)
        elif not agents:
            answers = sizes.size_received(level, name)
        return prompts.and_(answers)

    def _agents_before(self, path: NodePath) -> Iterator[tuple[NodePath, AgentNodeSpec]]:
        """The agent nodes that can have run before a node, at its level and those round it."""
        before: set[NodePath] = set()
        for depth in range(len(path), 0, -1):
            level = path[: depth - 1]
            before |= {(*level, name) for name in _find_ancestors(self._spec, level, path[depth - 1])}
        for each, node in nodes_of(self._spec):
            if isinstance(node, AgentNodeSpec) and any(each[: len(one)] == one for one in before):
                yield each, node

    def _bound_attachments(self, node: _AskingSpec, models: Sequence[KnownModel], sizes: OutputSizes) -> Size:
        """Files that a model is shown: those that are given, and images by their vendor's rule."""
        total = NOTHING
        for each in attached_in_node(self._spec, node):
            attachment = foreseen_value(each.text, sizes.inputs)
            if attachment is not None:
                files = list(find_files(attachment.value))
                of_models = [sum(most_file_tokens(f, m.provider, m.name) for f in files) for m in models]
                total = total.and_(Size(max(of_models, default=0)))
            elif each.declared is not None and set(each.declared.media_types or ("*/*",)) <= {"image/*", *IMAGES}:
                total = total.and_(Size(max(image_tokens(m.provider, m.name) for m in models)))
            else:
                return UNKNOWN
        return total

    # --- models -----------------------------------------------------------------------------------

    def _models(self, settings: AgentSpec, own: str | None = None) -> Sequence[KnownModel]:
        """The models that may answer; `own` is the judge's."""
        names = (own or settings.model, *(settings.fallbacks or ())) if self._model is None else (self._model,)
        # Options go with the model that they were given for: another one for judging gets none of them.
        options = None if own is not None else normalize_options(options_of(settings))
        models = [self._facts.of(each) for each in names]
        return [each._replace(options={**(each.options or {}), **(options or {})}) for each in models]

    def _longest(self, models: Sequence[KnownModel], max_tokens: int | None) -> int | None:
        if max_tokens is not None:
            return max_tokens
        lengths = [each.answer(is_bounded=self._is_capped) for each in models]
        return None if None in lengths else max(each for each in lengths if each is not None)

    def _size_of_texts(self, texts: Iterable[str], path: NodePath, sizes: OutputSizes) -> Size:
        total = NOTHING
        for text in texts:
            total = total.and_(sizes.template(text, path[:-1], path[-1])).and_(Size(4))
        return total


def _bound_structured(
    answers: int, question: Size, answer: Size, models: Sequence[KnownModel], settings: AgentSpec
) -> Most:
    """The bound of `answers` answers of a judge's or a router's shape, each corrected as often as that is allowed."""
    question = question.and_(answer).and_(Size(_REMARK_TOKENS + _JUDGEMENT_TOKENS))
    number, is_cached = answers * (1 + _count_retries(settings)), _is_cached(settings)
    return most_of_calls(number, _add_slack(question), answer.tokens, models, is_cached=is_cached)


def _is_cached(settings: AgentSpec) -> bool:
    return settings.prompt_cache != "off"


def _has_any(settings: AgentSpec, names: Iterable[str]) -> bool:
    return any(getattr(settings, name, None) for name in names)


def list_named_models(entry: Any, parameter: str) -> Iterator[str]:
    """The models that an entry of `context` names in a parameter, in either of its notations.

    >>> entries = {"compressor": {"model": "m"}}, {"type": "compressor", "model": "n"}
    >>> [model for entry in entries for model in list_named_models(entry, "model")]
    ['m', 'n']
    """
    if is_map(entry):
        for holder in (entry, *entry.values()):
            model = holder.get(parameter) if is_map(holder) else None
            if isinstance(model, str):
                yield model


def _add_slack(size: Size) -> int | None:
    """Texts put together may have a few tokens more than each for itself."""
    return None if size.tokens is None else size.tokens * 21 // 20 + 16


def _count_retries(settings: AgentSpec) -> int:
    return _DEFAULT_RETRIES if settings.max_retries is None else settings.max_retries


def _count_improvements(judging: Evaluate) -> int:
    if not isinstance(judging, Improve):
        return 0
    return _DEFAULT_IMPROVEMENTS if judging.max_iterations is None else judging.max_iterations


def _list_descriptions(routes: Any) -> Iterator[str]:
    for label, route in routes.items():
        yield f"{label} {route.description}"


@cache
def _measure_fixed_texts(locale: str | None) -> Size:
    """All that agents add of their own to a prompt; one with tools has no prompt of known size."""
    texts = load_messages(locale or "en").texts
    sections = ("generation", "improvement", "evaluation", "criteria", "routing", "structured")
    return Size(sum(count_tokens(text) for key, text in texts.items() if key.startswith(sections)))


def _measure_schema(output: Any) -> Size:
    """A schema goes with the request, and where the vendor does not enforce it, in the prompt as well."""
    if output is None:
        return NOTHING
    return Size(2 * count_tokens(json.dumps(output, ensure_ascii=False))) if is_map(output) else UNKNOWN


def _find_ancestors(spec: FlowSpec, level: NodePath, name: str) -> set[str]:
    parents: dict[str, list[str]] = {}
    for source, target, _ in edges_of(spec, level):
        parents.setdefault(target, []).append(source)
    ancestors: set[str] = set()
    waiting = [name]
    while waiting:
        for each in parents.get(waiting.pop(), ()):
            if each not in ancestors:
                ancestors.add(each)
                waiting.append(each)
    return ancestors
