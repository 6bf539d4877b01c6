"""What happens in a store, told to OpenTelemetry as spans. Loaded only when a store is opened with it."""
