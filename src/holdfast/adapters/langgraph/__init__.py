"""LangGraph on Holdfast: `HoldfastSaver`, a checkpointer whose threads are sessions.

thread        one thread is two sessions: its words, a transcript like any other, and its steps
words         which messages are known, which are new
values        a graph's values as JSON: messages by reference, what has changed in a list
history       the steps of a thread, and the state at each
threads       the threads of a store: found, opened, deleted, copied
checkpoints   loading and storing steps; runs that were overtaken are told so
durable       a graph whose runs are turns: streamed text is stored before it is shown
settle        what a run that was cut off has left open
"""

try:
    from holdfast.adapters.langgraph.durable import DurableGraph
    from holdfast.adapters.langgraph.saver import HoldfastSaver
except ModuleNotFoundError as error:
    if error.name is None or error.name.startswith("holdfast"):
        raise
    raise ImportError(
        "this adapter needs LangGraph: pip install 'holdfast[langgraph]'"
    ) from error

__all__ = ["DurableGraph", "HoldfastSaver"]
