"""What came in through the gateway: kept from its receipt until a turn has it."""
