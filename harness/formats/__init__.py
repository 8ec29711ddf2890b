"""Whether the installed formats are right: every packer against every unpacker, against bytes that the original packers
wrote, and against other projects' packers that are installed."""
