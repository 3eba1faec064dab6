// A convolution of channels-last bf16 images with its neighbours fused in, for Hopper GPUs.
//
// Forward:   out = conv(leaky(BatchNorm(x))) + other, the sums of out and out^2 that the next BatchNorm needs, and the
//            moments (mean, 1 / deviation) of x, which come from such sums: `before`, of `blocks` blocks.
// Backward:  out = conv(x) * leaky'(BatchNorm(other)), and the sums of out and out * (other - mean) that the BatchNorm's
//            own backward needs; `weights` are those of the transposed convolution, `moments` those of `other`.
//
// The host sets what tile.cuh names, the switches ADD and BACK, and EPSILON, and writes wgmma(), whose register list
// depends on COUT. A block keeps the weights and takes bands in turn; two blocks to a multiprocessor, so that one loads
// while the other multiplies.

constexpr int GROUPS = THREADS / 128;  // of threads that multiply 64 positions together
constexpr int TILES = (POSITIONS + 63) / 64;
constexpr int GROUP = COUT < 32 ? COUT : 32;  // four neighbouring threads hold GROUP channels of a pixel,
constexpr int PIECE = GROUP / 4;              // PIECE in a row each: the host ordered the columns of the weights so
constexpr int PIECES = COUT / GROUP;
constexpr int HELD = PIECE * PIECES;

// Where a matrix begins, and how far apart its blocks of 8 x 8 are: along the channels, and along the pixels (128 bytes).
__device__ __forceinline__ u64 describe(const void* start, int along_channels) {
    u32 at = (u32)__cvta_generic_to_shared(start);
    return (u64)(at >> 4) | ((u64)along_channels << 16) | ((u64)8 << 32);
}

struct Piece { u32 v[PIECE / 2]; };

__device__ __forceinline__ Piece load_piece(const u16* from) {
    Piece p;
    if constexpr (PIECE == 8) {
        uint4 v = __ldg((const uint4*)from);
        p.v[0] = v.x, p.v[1] = v.y, p.v[2] = v.z, p.v[3] = v.w;
    } else {
        uint2 v = __ldg((const uint2*)from);
        p.v[0] = v.x, p.v[1] = v.y;
    }
    return p;
}
__device__ __forceinline__ void store_piece(u16* to, Piece p) {
    if constexpr (PIECE == 8) *(uint4*)to = make_uint4(p.v[0], p.v[1], p.v[2], p.v[3]);
    else *(uint2*)to = make_uint2(p.v[0], p.v[1]);
}

// Mean and 1 / deviation of x: added up by all threads, the same in every block; the first one writes them out.
__device__ __forceinline__ void find_moments(float* scratch, float* factors, const float* __restrict__ before,
                                             float* __restrict__ moments, int images, int blocks) {
    constexpr int SHARES = THREADS / (2 * CIN);
    const int share = threadIdx.x / (2 * CIN), value = threadIdx.x % (2 * CIN);
    float total = 0;
    if (share < SHARES) {
#pragma unroll 16
        for (int block = share; block < blocks; block += SHARES) total += before[block * 2 * CIN + value];
        scratch[share * 2 * CIN + value] = total;
    }
    __syncthreads();
    if (threadIdx.x >= CIN) return;
    double mean = 0, square = 0;
    for (int s = 0; s < SHARES; ++s) mean += scratch[s * 2 * CIN + threadIdx.x], square += scratch[(s * 2 + 1) * CIN + threadIdx.x];
    const double count = (double)images * SIDE * SIDE;
    mean /= count;
    const float variance = fmax(square / count - mean * mean, 0.0);
    factors[3 * CIN + threadIdx.x] = mean;
    factors[4 * CIN + threadIdx.x] = 1.f / sqrtf(variance + EPSILON);
    if (blockIdx.x == 0) moments[threadIdx.x] = mean, moments[CIN + threadIdx.x] = factors[4 * CIN + threadIdx.x];
}

extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT)
convolution(const void* __restrict__ x, const uint4* __restrict__ weights, const float* __restrict__ before,
            const float* __restrict__ gamma, const float* __restrict__ beta, const u16* __restrict__ other,
            float* __restrict__ moments, u16* __restrict__ out, float* __restrict__ sums, int images, int blocks) {
    extern __shared__ uint4 shared[];
    uint4* planes = shared;
    uint4* taps = planes + CHUNKS * PLANE;
    float* factors = (float*)(taps + TAPS * CHUNKS * COUT);  // scale, shift, mean
    const int tid = threadIdx.x, lane = tid % 32;
    for (int i = tid; i < TAPS * CHUNKS * COUT; i += THREADS) taps[i] = weights[i];
    if (NORM) {
        find_moments((float*)planes, factors, before, moments, images, blocks);
        __syncthreads();
        set_factors<CIN>(factors, factors + 3 * CIN, gamma, beta);
    }
    if (BACK) set_factors<COUT>(factors, moments, gamma, beta);
    __syncthreads();
    for (int i = tid; i < CHUNKS * PLANE; i += THREADS) planes[i] = make_uint4(0, 0, 0, 0);
    const Norm by = norm_of(tid, factors, gamma, beta);
    const int group = __shfl_sync(~0u, tid / 128, 0);  // so that the compiler knows it to be the same for a whole warp
    const int row_in_tile = tid / 32 % 4 * 16 + lane / 4;
    const u64 plane_matrix = describe(planes, PLANE), tap_matrix = describe(taps, COUT);
    float sum[HELD] = {}, product[HELD] = {};
    for (int band = blockIdx.x; band < images * BANDS; band += gridDim.x) {
        const int image = band / BANDS, top = band % BANDS * ROWS;
        __syncthreads();  // nobody reads the last band any more
        fill_input(planes, x, tid, band, by);
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        __syncthreads();
        for (int tile = group; tile < TILES; tile += GROUPS) {
            float d[COUT / 2];
            asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
            for (int tap = 0; tap < TAPS; ++tap)
#pragma unroll
                for (int k = 0; k < CIN / 16; ++k)
                    wgmma(d, plane_matrix + tile * 64 + (tap / 3) * PITCH + tap % 3 + 2 * k * PLANE,
                          tap_matrix + (tap * CHUNKS + 2 * k) * COUT, tap + k);
            asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");

            bool inside[2];
            u64 place[2];
            Piece beside[2][PIECES];
#pragma unroll
            for (int h = 0; h < 2; ++h) {
                int position = tile * 64 + row_in_tile + 8 * h, row = position / PITCH, column = position % PITCH;
                inside[h] = column < SIDE && row < ROWS;
                place[h] = ((u64)image * SIDE * SIDE + (top + row) * SIDE + column) * COUT + lane % 4 * PIECE;
                if (ADD || BACK)
#pragma unroll
                    for (int p = 0; p < PIECES; ++p)
                        if (inside[h]) beside[h][p] = load_piece(other + place[h] + p * GROUP);
            }
            asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
#pragma unroll
            for (int h = 0; h < 2; ++h) {
                if (!inside[h]) continue;
#pragma unroll
                for (int p = 0; p < PIECES; ++p) {
                    Piece made;
#pragma unroll
                    for (int j = 0; j < PIECE / 2; ++j) {
                        const int at = (p * (GROUP / 8) + j) * 4 + 2 * h, held = p * PIECE + 2 * j;
                        float2 value = make_float2(d[at], d[at + 1]), with = make_float2(0, 0);
                        if (ADD || BACK) with = make_float2(low(beside[h][p].v[j]), high(beside[h][p].v[j]));
                        if (ADD) value.x += with.x, value.y += with.y;
                        if (BACK) {
                            const float* channel = factors + p * GROUP + lane % 4 * PIECE + 2 * j;
                            const float2 scale = *(float2*)channel, shift = *(float2*)(channel + COUT), mean = *(float2*)(channel + 2 * COUT);
                            if (fmaf(with.x, scale.x, shift.x) <= 0) value.x *= SLOPE;
                            if (fmaf(with.y, scale.y, shift.y) <= 0) value.y *= SLOPE;
                            with.x -= mean.x, with.y -= mean.y;
                        }
                        made.v[j] = pack(value.x, value.y);
                        value = make_float2(low(made.v[j]), high(made.v[j]));  // what is stored is what is summed
                        sum[held] += value.x, sum[held + 1] += value.y;
                        product[held] += value.x * (BACK ? with.x : value.x);
                        product[held + 1] += value.y * (BACK ? with.y : value.y);
                    }
                    store_piece(out + place[h] + p * GROUP, made);
                }
            }
        }
    }
    // One row of sums for each block, added in a fixed order: the same bits every time.
    __syncthreads();
    float* rows = (float*)planes;  // (warps, 2, COUT)
#pragma unroll
    for (int i = 0; i < HELD; ++i) {
#pragma unroll
        for (int far = 4; far < 32; far *= 2) {
            sum[i] += __shfl_xor_sync(~0u, sum[i], far);
            product[i] += __shfl_xor_sync(~0u, product[i], far);
        }
        int channel = i / PIECE * GROUP + lane % 4 * PIECE + i % PIECE;
        if (lane < 4) {
            rows[tid / 32 * 2 * COUT + channel] = sum[i];
            rows[(tid / 32 * 2 + 1) * COUT + channel] = product[i];
        }
    }
    __syncthreads();
    for (int i = tid; i < 2 * COUT; i += THREADS) {
        float total = 0;
        for (int warp = 0; warp < THREADS / 32; ++warp) total += rows[warp * 2 * COUT + i];
        sums[blockIdx.x * 2 * COUT + i] = total;
    }
}
