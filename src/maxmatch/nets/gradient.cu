// The gradient of a convolution's weights: out[co][tap][ci] = sum over pixels of leaky(BatchNorm(x)) at the tap
// times `delta`, the gradient of what the convolution gave. One sum for each block; the host adds them.
//
// Some threads fill one of two bands while the others work on the other one. The host sets what tile.cuh names, and how
// the working warps share the work: each has IN x 16 input and OUT x 8 output
// channels of a row of NEAR taps, and one of SPLITS shares of the pixels.

constexpr int WORKERS = THREADS - FILLERS;
constexpr int STEPS = (POSITIONS + 15) / 16;  // of 16 positions each
constexpr int DELTA_PLANE = plane_of(STEPS * 16);
constexpr int IN_BLOCKS = CIN / (16 * IN), OUT_BLOCKS = COUT / (8 * OUT), TAP_BLOCKS = TAPS / NEAR;
static_assert(WORKERS == 32 * IN_BLOCKS * OUT_BLOCKS * TAP_BLOCKS * SPLITS, "every warp has its share");

// Named barriers: a band is handed over by those who arrive to those who wait. Barrier 0 is __syncthreads.
__device__ __forceinline__ void wait_for(int barrier) { asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(THREADS) : "memory"); }
__device__ __forceinline__ void arrive_at(int barrier) { asm volatile("bar.arrive %0, %1;" ::"r"(barrier), "r"(THREADS) : "memory"); }
__device__ __forceinline__ int full(int turn) { return 1 + turn % 2; }
__device__ __forceinline__ int empty(int turn) { return 3 + turn % 2; }

// Four 8 x 8 matrices, turned: pixels run along the sum, channels along the result.
__device__ __forceinline__ void load_turned(u32 (&v)[4], u32 at) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3]) : "r"(at));
}
__device__ __forceinline__ void multiply(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

__device__ __forceinline__ void workers_meet() { asm volatile("bar.sync 5, %0;" ::"r"(WORKERS) : "memory"); }

extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT)
gradient(const void* __restrict__ x, const float* __restrict__ moments, const float* __restrict__ gamma,
         const float* __restrict__ beta, const uint4* __restrict__ delta, float* __restrict__ out, int images) {
    extern __shared__ uint4 shared[];
    constexpr int BAND = CHUNKS * PLANE + COUT / 8 * DELTA_PLANE;  // the input, then delta; two of them
    const int tid = threadIdx.x, lane = tid % 32, warp = tid / 32;
    for (int i = tid; i < 2 * BAND; i += THREADS) shared[i] = make_uint4(0, 0, 0, 0);
    float* factors = (float*)(shared + 2 * BAND);
    if (NORM) set_factors<CIN>(factors, moments, gamma, beta);
    __syncthreads();

    if (tid >= WORKERS) {
        const Norm by = norm_of(tid - WORKERS, factors, gamma, beta);
        for (int band = blockIdx.x, turn = 0; band < images * BANDS; band += gridDim.x, ++turn) {
            uint4* planes = shared + turn % 2 * BAND;
            const uint4* from = delta + (u64)(band / BANDS) * SIDE * SIDE * (COUT / 8);
            if (turn > 1) wait_for(empty(turn));
            fill<COUT, 0, DELTA_PLANE, false>(planes + CHUNKS * PLANE, from, tid - WORKERS, band % BANDS * ROWS, by);
            fill_input(planes, x, tid - WORKERS, band, by);
            arrive_at(full(turn));
        }
        return;
    }
    const int in_block = warp % IN_BLOCKS, out_block = warp / IN_BLOCKS % OUT_BLOCKS;
    const int tap_block = warp / (IN_BLOCKS * OUT_BLOCKS) % TAP_BLOCKS, split = warp / (IN_BLOCKS * OUT_BLOCKS * TAP_BLOCKS);
    float d[NEAR][IN][OUT][4] = {};
    // Of four matrices a thread names a row of one: for the input (channels, pixels) go 00 10 01 11, for delta 00 01 10 11.
    const u32 start = (u32)__cvta_generic_to_shared(shared);
    const u32 input_place = 16 * ((in_block * IN * 2 + lane / 8 % 2) * PLANE + tap_block * PITCH + lane / 16 * 8 + lane % 8);
    const u32 delta_place = 16 * (CHUNKS * PLANE + (out_block * OUT + lane / 16) * DELTA_PLANE + lane / 8 % 2 * 8 + lane % 8);
    for (int band = blockIdx.x, turn = 0; band < images * BANDS; band += gridDim.x, ++turn) {
        const u32 input_at = start + turn % 2 * BAND * 16 + input_place, delta_at = start + turn % 2 * BAND * 16 + delta_place;
        wait_for(full(turn));
        for (int step = split; step < STEPS; step += SPLITS) {
            u32 b[OUT / 2][4];
#pragma unroll
            for (int n = 0; n < OUT / 2; ++n) load_turned(b[n], delta_at + 16 * (2 * n * DELTA_PLANE + step * 16));
#pragma unroll
            for (int t = 0; t < NEAR; ++t)
#pragma unroll
                for (int m = 0; m < IN; ++m) {
                    u32 a[4];
                    load_turned(a, input_at + 16 * (2 * m * PLANE + step * 16 + t));
#pragma unroll
                    for (int n = 0; n < OUT; ++n) multiply(d[t][m][n], a, b[n / 2][n % 2 * 2], b[n / 2][n % 2 * 2 + 1]);
                }
        }
        arrive_at(empty(turn));
    }
    // d holds (ci, co): rows lane / 4 and 8 further, columns 2 * (lane % 4) and the next.
    float* total = SPLITS > 1 ? (float*)shared : out + (u64)blockIdx.x * TAPS * CIN * COUT;
    for (int turn = 0; turn < SPLITS; ++turn) {
        if (SPLITS > 1) workers_meet();
        if (turn != split) continue;
#pragma unroll
        for (int t = 0; t < NEAR; ++t)
#pragma unroll
            for (int m = 0; m < IN; ++m)
#pragma unroll
                for (int n = 0; n < OUT; ++n)
#pragma unroll
                    for (int i = 0; i < 4; ++i) {
                        int ci = (in_block * IN + m) * 16 + lane / 4 + i / 2 * 8, co = (out_block * OUT + n) * 8 + lane % 4 * 2 + i % 2;
                        float* to = total + (co * TAPS + tap_block * NEAR + t) * CIN + ci;
                        *to = turn ? *to + d[t][m][n][i] : d[t][m][n][i];
                    }
    }
    if (SPLITS == 1) return;
    workers_meet();
    for (int i = tid; i < TAPS * CIN * COUT; i += WORKERS) out[(u64)blockIdx.x * TAPS * CIN * COUT + i] = total[i];
}
