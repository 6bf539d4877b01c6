"""The engine over HTTP: sessions that another process keeps, reached through `holdfast serve`."""
