"""Messages as LangChain shapes them, and the steps of LangGraph beside them."""
