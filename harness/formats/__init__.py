"""Checks the installed formats: every packer against every unpacker, against bytes that the original packers wrote, and
against installed packers of other projects."""
