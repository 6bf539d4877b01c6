"""LlamaIndex: its chat store is written by its memory when an answer is whole, so there is nothing in
it to kill but whole messages. The tests do that.
"""

INSTALL = ["llama-index-core>=0.14.25"]
TESTS = ["tests/frameworks/test_llama_index.py"]
