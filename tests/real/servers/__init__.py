"""Real model servers, each from its own virtual environment, each a process with a log of its own."""
