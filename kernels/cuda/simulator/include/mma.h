// nvcuda::wmma: matrix fragments of a warp. Element e of a matrix (row by row) is x[e / 32] of lane e % 32. Kernels may
// not rely on this: on the device the order differs and is not documented. The terms of a product are added one after
// the other in the accumulator's type.
#pragma once
#include "cuda_bf16.h"
#include "cuda_fp16.h"

namespace nvcuda::wmma {

struct matrix_a {};
struct matrix_b {};
struct accumulator {};
struct row_major {};
struct col_major {};
enum layout_t { mem_row_major, mem_col_major };

template <class Use, int M, int N, int K, class T, class Layout = void>
struct fragment {
    static constexpr int ROWS = std::is_same_v<Use, matrix_b> ? K : M, COLUMNS = std::is_same_v<Use, matrix_a> ? K : N;
    static constexpr int num_elements = ROWS * COLUMNS / 32;
    using element_type = T;
    static_assert((M == 16 && N == 16 && K == 16) || (M == 32 && N == 8 && K == 16) || (M == 8 && N == 32 && K == 16));
    T x[num_elements];
};

template <class Use, int M, int N, int K, class T, class Layout>
TRITMARK_INLINE void fill_fragment(fragment<Use, M, N, K, T, Layout>& into, std::common_type_t<T> value) {
    for (auto& x : into.x) x = value;
}

inline void tritmark_nothing(void**) {}

// Check the rules for pointer and row length, and that the whole warp takes part.
template <class T>
TRITMARK_INLINE void tritmark_check(const T* p, unsigned ldm, void* pc) {
    if (reinterpret_cast<uintptr_t>(p) % 32)
        tritmark_refuse("misaligned matrix: wmma needs an address that is a multiple of 32 bytes", p, pc);
    if (ldm * sizeof(T) % 16)
        tritmark_refuse("misaligned rows: wmma needs a row length that is a multiple of 16 bytes", p, pc);
    tritmark_together(&tritmark_nothing, nullptr, pc);
}

template <class Use, int M, int N, int K, class T, class Layout>
TRITMARK_PLAIN void tritmark_fetch(fragment<Use, M, N, K, T, Layout>& into, const T* p, unsigned ldm, bool rows) {
    using F = fragment<Use, M, N, K, T, Layout>;
    void* pc = __builtin_return_address(0);
    tritmark_check(p, ldm, pc);
    for (int i = 0; i < F::num_elements; i++) {
        const unsigned e = i * 32 + tritmark_lane(), row = e / F::COLUMNS, column = e % F::COLUMNS;
        const T* at = p + (rows ? size_t{row} * ldm + column : size_t{column} * ldm + row);
        tritmark_access(at, sizeof(T), 0, pc);
        into.x[i] = *at;
    }
}

template <class Use, int M, int N, int K, class T, class Layout>
TRITMARK_INLINE void load_matrix_sync(fragment<Use, M, N, K, T, Layout>& into, const T* p, unsigned ldm) {
    tritmark_fetch(into, p, ldm, std::is_same_v<Layout, row_major>);
}
template <int M, int N, int K, class T>
TRITMARK_INLINE void load_matrix_sync(fragment<accumulator, M, N, K, T>& into, const T* p, unsigned ldm,
                                      layout_t layout) {
    tritmark_fetch(into, p, ldm, layout == mem_row_major);
}

template <int M, int N, int K, class T>
TRITMARK_PLAIN void store_matrix_sync(T* p, const fragment<accumulator, M, N, K, T>& from, unsigned ldm,
                                      layout_t layout) {
    void* pc = __builtin_return_address(0);
    tritmark_check(p, ldm, pc);
    for (int i = 0; i < from.num_elements; i++) {
        const unsigned e = i * 32 + tritmark_lane(), row = e / N, column = e % N;
        T* at = p + (layout == mem_row_major ? size_t{row} * ldm + column : size_t{column} * ldm + row);
        tritmark_access(at, sizeof(T), 1, pc);
        *at = from.x[i];
    }
}

template <class D, class A, class B, class C>
struct tritmark_product {
    D* d;
    const A* a;
    const B* b;
    const C* c;
};

template <int M, int N, int K, class T, class LayoutA, class LayoutB, class Into, class From>
TRITMARK_INLINE void mma_sync(fragment<accumulator, M, N, K, Into>& d, const fragment<matrix_a, M, N, K, T, LayoutA>& a,
                              const fragment<matrix_b, M, N, K, T, LayoutB>& b,
                              const fragment<accumulator, M, N, K, From>& c) {
    using D = fragment<accumulator, M, N, K, Into>;
    using A = fragment<matrix_a, M, N, K, T, LayoutA>;
    using B = fragment<matrix_b, M, N, K, T, LayoutB>;
    using C = fragment<accumulator, M, N, K, From>;
    using Product = tritmark_product<D, A, B, C>;
    using Wide = std::conditional_t<std::is_integral_v<T>, int, float>;
    static_assert(!std::is_integral_v<T> || (std::is_same_v<Into, int> && std::is_same_v<From, int>));
    Product mine{&d, &a, &b, &c};
    tritmark_together(
        [](void** frames) __attribute__((no_sanitize("thread"))) {
            auto lane = reinterpret_cast<Product**>(frames);
            Wide wide_a[M * K], wide_b[K * N], sum[M * N];
            for (int e = 0; e < M * K; e++) wide_a[e] = lane[e % 32]->a->x[e / 32];
            for (int e = 0; e < K * N; e++) wide_b[e] = lane[e % 32]->b->x[e / 32];
            for (int e = 0; e < M * N; e++) sum[e] = lane[e % 32]->c->x[e / 32];
            for (int row = 0; row < M; row++)
                for (int k = 0; k < K; k++)
                    for (int column = 0; column < N; column++)
                        sum[row * N + column] += wide_a[row * K + k] * wide_b[k * N + column];
            for (int e = 0; e < M * N; e++) lane[e % 32]->d->x[e / 32] = Into(sum[e]);
        },
        &mine, nullptr);
}

}  // namespace nvcuda::wmma
