/* ternary_matmul of base3 in plain C: out = activations * weights^T, times weight_scale / act_scale. One thread.
 *
 * tritmark's clock calls `base3_matmul(args)` in a loop of its own, so that neither Python nor ctypes is in a time. */
#include <stdint.h>
#include <string.h>

#define DIGITS 5
#define BYTES 64 /* of a row of weights that are unpacked at a time */
#define ROWS 8   /* rows of activations that one unpacking serves */

/* As cpu.py has it. */
typedef struct {
    const char *ran; /* what ran last, NULL before */
    int64_t runs;
    const int8_t *activations;
    const uint8_t *weights;
    const float *act_scale;
    void *out;
    int64_t stride; /* bytes from one row of activations to the next */
    int64_t M, N, K;
    float weight_scale;
    int32_t kind; /* of outputs: 0 int32, 1 float32, 2 bfloat16 */
} arguments;

/* The weights of each byte; three more, so that eight are copied at once. */
static int8_t weights_of[256][8];

__attribute__((constructor)) static void fill(void)
{
    for (int byte = 0; byte < 256; byte++)
        for (int i = 0, digits = byte; i < DIGITS; i++, digits /= 3)
            weights_of[byte][i] = (int8_t)(digits % 3 - 1);
}

static void store(const arguments *a, int64_t at, int64_t m, int32_t sum)
{
    if (a->kind == 0) {
        ((int32_t *)a->out)[at] = sum;
        return;
    }
    float value = (float)((double)sum * ((double)a->weight_scale / (double)a->act_scale[m]));
    if (a->kind == 1) {
        ((float *)a->out)[at] = value;
        return;
    }
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    ((uint16_t *)a->out)[at] = (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16); /* to nearest even */
}

int base3_matmul(void *args)
{
    arguments *a = args;
    int64_t row_bytes = (a->K + DIGITS - 1) / DIGITS;
    for (int64_t m0 = 0; m0 < a->M; m0 += ROWS) {
        int64_t rows = a->M - m0 < ROWS ? a->M - m0 : ROWS;
        for (int64_t n = 0; n < a->N; n++) {
            const uint8_t *row = a->weights + n * row_bytes;
            int32_t sums[ROWS] = {0};
            for (int64_t j = 0; j < row_bytes; j += BYTES) {
                int8_t w[BYTES * DIGITS + 3];
                int64_t bytes = row_bytes - j < BYTES ? row_bytes - j : BYTES;
                for (int64_t b = 0; b < bytes; b++)
                    memcpy(w + b * DIGITS, weights_of[row[j + b]], 8);
                int64_t k0 = j * DIGITS, count = a->K - k0 < bytes * DIGITS ? a->K - k0 : bytes * DIGITS;
                for (int64_t m = 0; m < rows; m++) {
                    const int8_t *x = a->activations + (m0 + m) * a->stride + k0;
                    int32_t sum = 0;
                    for (int64_t k = 0; k < count; k++)
                        sum += x[k] * w[k];
                    sums[m] += sum;
                }
            }
            for (int64_t m = 0; m < rows; m++)
                store(a, (m0 + m) * a->N + n, m0 + m, sums[m]);
        }
    }
    a->runs++;
    a->ran = "scalar";
    return 0;
}
