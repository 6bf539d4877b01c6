"""What a search asks for, and the words of a text."""
