"""How sessions, findings and tables are written for people and for programs."""
