"""The measuring room: buffers, clocks, stopping rules, and the one way in which two things are compared."""
