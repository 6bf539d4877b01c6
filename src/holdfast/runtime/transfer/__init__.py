"""Sessions from elsewhere: importing, copying between stores, restoring from a file."""
