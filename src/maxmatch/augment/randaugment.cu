// RandAugment by one block for each image: its operations in their order, then the cutout, in shared memory.
// The arithmetic is that of ops.py and kernels.py, which is PIL's; products and sums must not be fused (--fmad=false).
// CHANNELS, HEIGHT, WIDTH, SLOTS, the colours FILL and COVER and a number for each operation are defined before.

typedef unsigned char u8;
typedef long long i64;

#define PIXELS (HEIGHT * WIDTH)
#define EACH(i, count) for (int i = threadIdx.x; i < (count); i += blockDim.x)

__device__ u8 to_byte(float value) { return (u8)fminf(fmaxf(value, 0.f), 255.f); }
__device__ u8 to_byte(double value) { return (u8)fmin(fmax(value, 0.), 255.); }
__device__ u8 to_byte(int value) { return (u8)(value < 0 ? 0 : value > 255 ? 255 : value); }
__device__ u8 blend(float start, float end, float factor) { return to_byte(start + factor * (end - start)); }
__device__ int fixed(double value, double rounding) { return (int)floor(value * 65536. + rounding); }

__device__ int grey(const u8* pixel) {
    if (CHANNELS == 1) return pixel[0];
    return (pixel[0] * 19595 + pixel[PIXELS] * 38470 + pixel[2 * PIXELS] * 7471 + 32768) >> 16;
}

// The pixel under a pixel of a warped image, or -1 outside; m takes output (x, y) to input, in 16.16 fixed point.
__device__ int source(const double* m, int pixel) {
    const int x = pixel % WIDTH, y = pixel / WIDTH;
    const double rounding = m[1] == 0. && m[3] == 0. ? 0. : .5;
    const int column = (fixed(m[2] + m[0] * .5 + m[1] * .5, rounding) + fixed(m[1], .5) * y + fixed(m[0], .5) * x) >> 16;
    const int row = (fixed(m[5] + m[3] * .5 + m[4] * .5, rounding) + fixed(m[4], .5) * y + fixed(m[3], .5) * x) >> 16;
    return column >= 0 && column < WIDTH && row >= 0 && row < HEIGHT ? row * WIDTH + column : -1;
}

// A pixel of one channel, smoothed and blended with itself; the outermost stay as they are.
__device__ u8 sharpen(const u8* image, int pixel, float factor) {
    const int x = pixel % WIDTH, y = pixel / WIDTH;
    if (x == 0 || y == 0 || x == WIDTH - 1 || y == HEIGHT - 1) return image[pixel];
    int total = 4 * image[pixel];
    for (int dy = -1; dy <= 1; dy++)
        for (int dx = -1; dx <= 1; dx++) total += image[pixel + dy * WIDTH + dx];
    return blend(floorf(total * (float)(1. / 13.) + .5f), image[pixel], factor);
}

// The tables of one channel that look at the image: its histogram is in `counts`.
__device__ void stretch(const int* counts, u8* lut) {
    int low = 0, high = 255;
    while (low < 255 && !counts[low]) low++;
    while (high > 0 && !counts[high]) high--;
    const double scale = 255. / (high > low ? high - low : 1);
    for (int level = 0; level < 256; level++)
        lut[level] = high > low ? to_byte(level * scale + -(double)low * scale) : (u8)level;
}

__device__ void flatten(const int* counts, u8* lut) {
    int high = 255, below = 0;
    while (high > 0 && !counts[high]) high--;
    const int step = (PIXELS - counts[high]) / 255;
    for (int level = 0; level < 256; level++) {
        lut[level] = step > 0 ? to_byte((step / 2 + below) / step) : (u8)level;
        below += counts[level];
    }
}

// The tables of the others: what becomes of a level; `mean` is that of the image's grey version.
__device__ u8 look_up(int op, int level, float magnitude, int mean) {
    const int whole = (int)magnitude, dropped = whole > 8 ? 0 : whole < 0 ? 8 : 8 - whole;
    if (op == POSTERIZE) return to_byte((level >> dropped) << dropped);
    if (op == SOLARIZE) return to_byte((float)level < magnitude ? level : 255 - level);
    if (op == SOLARIZE_ADD) return to_byte(level < 128 ? level + whole : level);
    if (op == BRIGHTNESS) return blend(0.f, level, magnitude);
    if (op == CONTRAST) return blend(mean, level, magnitude);
    return (u8)(255 - level);  // invert
}

extern "C" __global__ void randaugment(
    const u8* images, const i64* ops, const float* magnitudes, const double* matrices, const i64* boxes, u8* results
) {
    __shared__ u8 image[CHANNELS * PIXELS], lut[CHANNELS * 256];
    __shared__ int counts[CHANNELS * 256], total;
    const int fill[CHANNELS] = {FILL}, cover[CHANNELS] = {COVER};
    const i64 view = blockIdx.x;
    u8* result = results + view * CHANNELS * PIXELS;

    EACH(i, CHANNELS * PIXELS) image[i] = images[view * CHANNELS * PIXELS + i];
    __syncthreads();
    for (int slot = 0; slot < SLOTS; slot++) {
        const int op = (int)ops[view * SLOTS + slot];
        const float magnitude = magnitudes[view * SLOTS + slot];
        const double* matrix = matrices + (view * SLOTS + slot) * 6;
        const bool warps = op == ROTATE || op == SHEAR_X || op == SHEAR_Y || op == TRANSLATE_X || op == TRANSLATE_Y;
        if (op == IDENTITY) continue;
        if (warps || op == SHARPNESS) {  // reads its neighbours: the result is put aside in global memory
            if (op == SHARPNESS && (HEIGHT < 3 || WIDTH < 3)) continue;
            EACH(pixel, PIXELS) {
                const int from = warps ? source(matrix, pixel) : 0;
                for (int c = 0; c < CHANNELS; c++) {
                    const u8* channel = image + c * PIXELS;
                    const u8 warped = from < 0 ? (u8)fill[c] : channel[from];
                    result[c * PIXELS + pixel] = warps ? warped : sharpen(channel, pixel, magnitude);
                }
            }
            __syncthreads();
            EACH(i, CHANNELS * PIXELS) image[i] = result[i];
        } else if (op == COLOR) {
            EACH(pixel, PIXELS) {
                const int start = grey(image + pixel);
                for (int c = 0; c < CHANNELS; c++)
                    image[c * PIXELS + pixel] = blend(start, image[c * PIXELS + pixel], magnitude);
            }
        } else {
            EACH(i, CHANNELS * 256) counts[i] = 0;
            EACH(i, 1) total = 0;
            __syncthreads();
            if (op == AUTOCONTRAST || op == EQUALIZE) {
                EACH(i, CHANNELS * PIXELS) atomicAdd(&counts[i / PIXELS * 256 + image[i]], 1);
                __syncthreads();
                EACH(c, CHANNELS) {
                    if (op == EQUALIZE) flatten(counts + c * 256, lut + c * 256);
                    else stretch(counts + c * 256, lut + c * 256);
                }
            } else {
                if (op == CONTRAST) {
                    int sum = 0;
                    EACH(pixel, PIXELS) sum += grey(image + pixel);
                    atomicAdd(&total, sum);
                    __syncthreads();
                }
                const int mean = (2 * total + PIXELS) / (2 * PIXELS);
                EACH(i, CHANNELS * 256) lut[i] = look_up(op, i % 256, magnitude, mean);
            }
            __syncthreads();
            EACH(i, CHANNELS * PIXELS) image[i] = lut[i / PIXELS * 256 + image[i]];
        }
        __syncthreads();
    }
    const i64* box = boxes + view * 4;  // top, left, bottom, right
    EACH(pixel, PIXELS) {
        const int x = pixel % WIDTH, y = pixel / WIDTH;
        const bool covered = y >= box[0] && y < box[2] && x >= box[1] && x < box[3];
        for (int c = 0; c < CHANNELS; c++) result[c * PIXELS + pixel] = covered ? (u8)cover[c] : image[c * PIXELS + pixel];
    }
}
