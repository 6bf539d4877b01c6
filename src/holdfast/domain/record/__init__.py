"""What is new in a list that a caller keeps: matching its places with stored messages."""
