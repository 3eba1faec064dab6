// Bands of channels-last bf16 images in shared memory, as the convolution kernels read them.
//
// Eight channels of a pixel are 16 bytes, and lie in planes, pixel after pixel, one zero between two rows and (with a
// halo) a zero row above and below. So the pixels under a tap are the same memory at another start: nine
// multiplications read one copy, each by its offset. Positions between two rows compute nothing of use: 1 in SIDE + 1.
//
// The host sets SIDE, CIN, COUT, TAPS (9 or 1), ROWS (of a band), THREADS (of a block), FILLERS (those of them that load
// bands), RESIDENT (blocks of a multiprocessor), SLOPE, NORM, and IMAGES (0, or the channels of uint8 images, channels
// first).

typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

constexpr int HALO = TAPS == 9;
constexpr int PITCH = SIDE + 1;
constexpr int POSITIONS = ROWS * PITCH - 1;
constexpr int BANDS = SIDE / ROWS;
constexpr int CHUNKS = CIN / 8;
// Pixels of a plane; 2 modulo 8, so that the stores of `fill` meet no bank twice.
__host__ __device__ constexpr int plane_of(int pixels) { return (pixels + 5) / 8 * 8 + 2; }
constexpr int PLANE = plane_of((ROWS + 2 * HALO) * PITCH + 1);

__device__ __forceinline__ float low(u32 v) { return __uint_as_float(v << 16); }
__device__ __forceinline__ float high(u32 v) { return __uint_as_float(v & 0xffff0000u); }
__device__ __forceinline__ u32 pack(float a, float b) {
    u32 v;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(v) : "f"(b), "f"(a));
    return v;
}
__device__ __forceinline__ float leaky(float v) { return fmaxf(v, SLOPE * v); }

// What BatchNorm multiplies by and adds, for all channels in shared memory and for the eight that a thread loads.
template <int CHANNELS>
__device__ __forceinline__ void set_factors(float* factors, const float* moments, const float* gamma, const float* beta) {
    for (int c = threadIdx.x; c < CHANNELS; c += THREADS) {
        factors[c] = gamma[c] * moments[CHANNELS + c];
        factors[CHANNELS + c] = beta[c] - moments[c] * factors[c];
        factors[2 * CHANNELS + c] = moments[c];
    }
}

struct Norm { float scale[8], shift[8]; };

// Planes of one band: rows top - halo to top + ROWS + halo of an image, leaky(scale * x + shift) where `norm`. What lies
// outside of the image must be zero already where the band is the whole image, and is set to zero otherwise.
template <int CHANNELS, int halo, int plane, bool norm>
__device__ __forceinline__ void fill(uint4* planes, const uint4* __restrict__ from, int filler, int top, const Norm& by) {
    constexpr int chunks = CHANNELS / 8, rows = BANDS == 1 ? ROWS : ROWS + 2 * halo;
    constexpr int loads = (rows * SIDE * chunks + FILLERS - 1) / FILLERS, at_once = loads < 8 ? loads : 8;
    static_assert(FILLERS % chunks == 0, "a thread loads the same channels of many pixels");
    const int chunk = filler % chunks;
    for (int first = 0; first < loads; first += at_once) {
        uint4 v[at_once];
#pragma unroll
        for (int j = 0; j < at_once; ++j) {
            int pixel = ((first + j) * FILLERS + filler) / chunks;
            int row = pixel / SIDE, there = BANDS == 1 ? row : top + row - halo;
            v[j] = make_uint4(0, 0, 0, 0);
            if (row < rows && there >= 0 && there < SIDE) v[j] = __ldg(from + (there * SIDE + pixel % SIDE) * chunks + chunk);
        }
#pragma unroll
        for (int j = 0; j < at_once; ++j) {
            int pixel = ((first + j) * FILLERS + filler) / chunks;
            int row = pixel / SIDE, there = BANDS == 1 ? row : top + row - halo;
            if (row >= rows) continue;
            if (norm && there >= 0 && there < SIDE) {
                u32* w = (u32*)&v[j];
#pragma unroll
                for (int k = 0; k < 4; ++k)
                    w[k] = pack(leaky(fmaf(low(w[k]), by.scale[2 * k], by.shift[2 * k])),
                                leaky(fmaf(high(w[k]), by.scale[2 * k + 1], by.shift[2 * k + 1])));
            }
            planes[chunk * plane + (BANDS == 1 ? row + halo : row) * PITCH + pixel % SIDE + halo] = v[j];
        }
    }
}

// The same from uint8 images, channels first: value * scale + shift in the first channels, zero in the others.
__device__ __forceinline__ void fill_images(uint4* planes, const u32* __restrict__ from, int filler, int top, float scale, float shift) {
    if constexpr (IMAGES == 0) return;  // SIDE may be below 4
    constexpr int rows = BANDS == 1 ? ROWS : ROWS + 2 * HALO, words = SIDE < 4 ? 1 : SIDE / 4;
    for (int i = filler; i < rows * words; i += FILLERS) {
        int row = i / words, column = i % words * 4, there = BANDS == 1 ? row : top + row - HALO;
        bool inside = there >= 0 && there < SIDE;
        u32 v[4] = {};
#pragma unroll
        for (int c = 0; c < IMAGES; ++c)
            if (inside) v[c] = __ldg(from + (c * SIDE + there) * words + column / 4);
        uint4* to = planes + (BANDS == 1 ? row + HALO : row) * PITCH + column + HALO;
#pragma unroll
        for (int p = 0; p < 4; ++p) {
            float f[4];
#pragma unroll
            for (int c = 0; c < 4; ++c)
                f[c] = c < IMAGES && inside ? __fadd_rn(__fmul_rn((float)((v[c] >> (8 * p)) & 255), scale), shift) : 0.f;
            to[p] = make_uint4(pack(f[0], f[1]), pack(f[2], f[3]), 0, 0);
        }
    }
}

// The input of the convolution at `band`, wherever it comes from.
__device__ __forceinline__ void fill_input(uint4* planes, const void* x, int filler, int band, const Norm& by) {
    const int image = band / BANDS, top = band % BANDS * ROWS;
    if constexpr (IMAGES > 0) fill_images(planes, (const u32*)x + image * (IMAGES * SIDE * SIDE / 4), filler, top, by.scale[0], by.shift[0]);
    else fill<CIN, HALO, PLANE, NORM>(planes, (const uint4*)x + (u64)image * SIDE * SIDE * CHUNKS, filler, top, by);
}

__device__ __forceinline__ Norm norm_of(int filler, const float* factors, const float* gamma, const float* beta) {
    Norm by;
    if (IMAGES) by.scale[0] = gamma[0], by.shift[0] = beta[0];
    if (NORM)
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            by.scale[i] = factors[filler % CHUNKS * 8 + i];
            by.shift[i] = factors[CIN + filler % CHUNKS * 8 + i];
        }
    return by;
}
