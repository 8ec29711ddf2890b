"""unpack_codes: the bytes of a weight format back into ternary codes, one a byte, on the device."""
