"""What callers see: the exported names, the errors, and the sync and async faces side by side."""

import inspect
import pickle
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from importlib import import_module
from types import ModuleType
from typing import Any, get_args, get_origin

EXPORTS_MAX = 56


def exports(package: ModuleType) -> list[str]:
    """The public names are listed, sorted, few and there; public classes say they are of the
    package.
    """
    names = list(getattr(package, "__all__", []))
    found = [] if names else [f"{package.__name__} has no __all__; list its public names there."]
    if names != sorted(set(names)):
        found.append(
            f"{package.__name__}.__all__ is not sorted, or says a name twice; write "
            f"{sorted(set(names))}."
        )
    if len(names) > EXPORTS_MAX:
        found.append(
            f"{package.__name__} exports {len(names)} names, the limit is {EXPORTS_MAX}; take "
            "some back."
        )
    for name in names:
        if not hasattr(package, name):
            found.append(
                f"{package.__name__}.__all__ has `{name}`, which is not there; import it or take "
                "it out."
            )
            continue
        value = getattr(package, name)
        if isinstance(value, type) and value.__module__ != package.__name__:
            found.append(
                f"{package.__name__}.{name} says it is from {value.__module__}; "
                f'set its __module__ to "{package.__name__}" where it is exported.'
            )
    return found


def unexported(package: ModuleType) -> list[str]:
    """Every class of ours that a public signature, property or field names is exported."""
    exported = {id(getattr(package, name)) for name in package.__all__}
    exported |= {
        id(value) for module in (package.parts, package.errors) for value in vars(module).values()
    }
    found = set()
    for name in package.__all__:
        value = getattr(package, name)
        for place, annotations in _annotations_of(name, value) if callable(value) else ():
            found |= {
                f"{place} names {kind.__name__}, which is not exported; export it."
                for kind in _classes_in(annotations)
                if kind.__module__.startswith(f"{package.__name__}.") and id(kind) not in exported
            }
    return sorted(found)


def _annotations_of(name: str, value: Any) -> Iterator[tuple[str, list[Any]]]:
    """The annotations of a function; of a class, those of its fields, properties and public
    methods.
    """
    if not isinstance(value, type):
        yield name, _read(getattr(value, "__annotations__", {}), inspect.unwrap(value))
        return
    for base in value.__mro__:
        if base.__module__.startswith("holdfast"):
            fields = {
                each: kind
                for each, kind in inspect.get_annotations(base).items()
                if not each.startswith("_")
            }
            yield name, _read(fields, vars(base).get("__init__"))
    for each, member in vars(value).items():
        function = inspect.unwrap(member.fget if isinstance(member, property) else member)
        if inspect.isfunction(function) and (each == "__init__" or not each.startswith("_")):
            # the only one of them that callers make
            if each != "__init__" or value.__name__ == "AgentCache":
                yield f"{name}.{each}", _read(function.__annotations__, function)


def _read(annotations: Mapping[str, Any], function: Any) -> list[Any]:
    """These annotations; those that are written as text are looked up where the function is, in the
    async face, or among what the package exports.
    """
    package = import_module("holdfast")
    known = {each: getattr(package, each) for each in package.__all__ if each != "open"}
    known |= {**vars(import_module("holdfast.runtime.aio")), **getattr(function, "__globals__", {})}
    return [eval(each, known) if isinstance(each, str) else each for each in annotations.values()]


def _classes_in(annotations: list[Any]) -> Iterator[type]:
    left = list(annotations)
    while left:
        each = left.pop()
        if isinstance(each, list):
            left += each
        elif isinstance(each, type) and not get_args(each):
            yield each
        else:
            left += [
                *get_args(each),
                *([get_origin(each)] if isinstance(get_origin(each), type) else []),
            ]


def error_classes(root: type[Exception]) -> list[type[Exception]]:
    """The whole tree below `root`, and `root`."""
    below = [each for kind in root.__subclasses__() for each in error_classes(kind)]
    return list(dict.fromkeys([root, *below]))


def error_codes(classes: list[type[Exception]]) -> list[str]:
    """Every error has a code of its own, and no two have the same."""
    found = [
        f"{kind.__name__} has no `code` of its own; give it one."
        for kind in classes
        if "code" not in vars(kind)
    ]
    codes = Counter(vars(kind)["code"] for kind in classes if "code" in vars(kind))
    return found + [
        f"{times} errors have the code `{code}`; callers tell errors apart by it, so give each "
        "its own."
        for code, times in codes.items()
        if times > 1
    ]


def error_statuses(classes: list[type[Exception]], statuses: Mapping[str, int]) -> list[str]:
    """Every error's code has an HTTP status, and nothing else has."""
    codes = {vars(kind).get("code") for kind in classes} - {None}
    found = [
        f"`{code}` has no HTTP status; add it to STATUS in server/problems.py."
        for code in sorted(codes - {*statuses})
    ]
    return found + [
        f"STATUS in server/problems.py has `{code}`, which no error has; take it out."
        for code in sorted({*statuses} - codes)
    ]


def error_tree(module: ModuleType, classes: list[type[Exception]]) -> list[str]:
    """All errors stand in one module, whose docstring draws them."""
    drawn = set(re.findall(r"\w+", module.__doc__ or ""))
    found = [
        f"{kind.__name__} is not in the tree that the docstring of errors.py draws; draw it."
        for kind in classes
        if kind.__name__ not in drawn
    ]
    return found + [
        f"{kind.__module__}.{kind.__name__} is an error outside errors.py; move it there."
        for kind in classes
        if getattr(module, kind.__name__, None) is not kind
    ]


def error_sentences(classes: list[type[Exception]]) -> list[str]:
    """The docstring of an error is its sentence, made of the fields it declares; and
    errors pickle.
    """
    return [
        f"{kind.__name__} {problem}" for kind in classes for problem in _sentence_problems(kind)
    ]


def _sentence_problems(kind: type[Exception]) -> Iterator[str]:
    text = " ".join((vars(kind).get("__doc__") or "").split())
    declared = {name for base in kind.__mro__ for name in inspect.get_annotations(base)} - {"code"}
    if not re.fullmatch(r"[A-Z`{].*\.", text):
        yield (
            "has no sentence; write its docstring from a capital letter to a full stop: what is "
            "so, then what to do."
        )
    for name in sorted(set(re.findall(r"\{(\w*)\}", text)) - declared):
        yield f"speaks of {{{name}}}, which it does not declare; annotate the field on the class."
    try:
        error = kind(**{name: f"<{name}>" for name in declared})
        again = pickle.loads(pickle.dumps(error))
    except Exception as problem:
        yield (
            f"can't be made from its fields and pickled ({problem}); leave both to the class at "
            "the root."
        )
        return
    if type(again) is not kind or str(again) != str(error) or vars(again) != vars(error):
        yield "comes back from pickling changed; leave that to the class at the root."
    if "{" in str(error):
        yield f"leaves a brace unfilled: {error}"


def twins(one: type, other: type) -> list[str]:
    """The sync and the async face have the same public names, with the same parameters."""
    ours, theirs = _public(one), _public(other)
    found = [
        f"{one.__name__}.{name} has no twin in {other.__name__}; add it."
        for name in ours.keys() - theirs.keys()
    ]
    found += [
        f"{other.__name__}.{name} has no twin in {one.__name__}; add it."
        for name in theirs.keys() - ours.keys()
    ]
    for name in ours.keys() & theirs.keys():
        if ours[name] != theirs[name]:
            found.append(
                f"{one.__name__}.{name}{_shown(ours[name])} and "
                f"{other.__name__}.{name}{_shown(theirs[name])} differ; "
                "make them the same."
            )
    return sorted(found)


def parameters(function: object) -> list[tuple[str, object, object]] | None:
    """(name, kind, default) of each parameter; None for what is not called."""
    if not callable(function):
        return None
    listed = inspect.signature(function).parameters.values()
    return [(each.name, each.kind, each.default) for each in listed if each.name != "self"]


def _public(face: type) -> dict[str, list[tuple[str, object, object]] | None]:
    names = {name for name in dir(face) if not name.startswith("_")}
    fields = {
        name
        for base in face.__mro__
        for name in inspect.get_annotations(base)
        if not name.startswith("_")
    }
    return {name: parameters(getattr(face, name, None)) for name in names} | {
        name: None for name in fields - names
    }


def _shown(listed: list[tuple[str, object, object]] | None) -> str:
    if listed is None:
        return " (a field)"
    return (
        "("
        + ", ".join(n if d is inspect.Parameter.empty else f"{n}={d!r}" for n, _, d in listed)
        + ")"
    )
