/* The float32 in four bytes, the lowest first. */
DECODE float read_float32(const uint8_t *at)
{
    union {
        uint32_t bits;
        float value;
    } read = {at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24};
    return read.value;
}
