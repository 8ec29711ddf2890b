"""pack_codes: ternary codes, one a byte, into the bytes of a weight format, on the device."""
