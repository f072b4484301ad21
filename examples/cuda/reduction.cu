// The sum of a vector of whole numbers: each warp by shuffles, each block by its warps, the blocks
// by one atomic addition each.
//
//   reduction [LENGTH]      (default 10000019)
//
// Whole numbers, so that the order of additions changes nothing and the processor's sum is the same.

#include <cstdio>
#include <cstdlib>
#include <vector>

#define CHECK(call)                                                                            \
  do {                                                                                         \
    cudaError_t error = (call);                                                                \
    if (error != cudaSuccess) {                                                                \
      std::fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call,                       \
                   cudaGetErrorString(error));                                                 \
      std::exit(2);                                                                            \
    }                                                                                          \
  } while (0)

constexpr unsigned ALL = 0xffffffffu;
constexpr int THREADS = 256;

__device__ unsigned long long warp_sum(unsigned long long value) {
  for (int apart = warpSize / 2; apart > 0; apart /= 2)
    value += __shfl_down_sync(ALL, value, apart);
  return value;  // of the whole warp, in its first lane
}

__global__ void reduction(const unsigned *values, size_t length, unsigned long long *total) {
  __shared__ unsigned long long of_warps[THREADS / 32];
  size_t stride = static_cast<size_t>(gridDim.x) * blockDim.x;
  unsigned long long sum = 0;
  for (size_t at = static_cast<size_t>(blockIdx.x) * blockDim.x + threadIdx.x; at < length;
       at += stride)
    sum += values[at];
  sum = warp_sum(sum);
  int lane = threadIdx.x % warpSize, warp = threadIdx.x / warpSize;
  if (lane == 0) of_warps[warp] = sum;
  __syncthreads();
  if (warp == 0) {
    sum = warp_sum(lane < THREADS / 32 ? of_warps[lane] : 0);
    if (lane == 0) atomicAdd(total, sum);
  }
}

int main(int count, char **words) {
  long long wanted = count > 1 ? std::atoll(words[1]) : 10000019;
  if (wanted < 1) {
    std::fprintf(stderr, "usage: %s [LENGTH], at least 1\n", words[0]);
    return 1;
  }
  size_t length = static_cast<size_t>(wanted);
  std::vector<unsigned> values(length);
  unsigned long long expected = 0, total = 0;
  for (size_t at = 0; at < length; ++at) {
    values[at] = static_cast<unsigned>(at * 2654435761u);
    expected += values[at];
  }

  unsigned *device_values;
  unsigned long long *device_total;
  CHECK(cudaMalloc(&device_values, length * sizeof(unsigned)));
  CHECK(cudaMalloc(&device_total, sizeof total));
  CHECK(cudaMemcpy(device_values, values.data(), length * sizeof(unsigned),
                   cudaMemcpyHostToDevice));
  CHECK(cudaMemset(device_total, 0, sizeof total));
  reduction<<<256, THREADS>>>(device_values, length, device_total);
  CHECK(cudaGetLastError());
  CHECK(cudaDeviceSynchronize());
  CHECK(cudaMemcpy(&total, device_total, sizeof total, cudaMemcpyDeviceToHost));
  CHECK(cudaFree(device_values));
  CHECK(cudaFree(device_total));

  if (total != expected) {
    std::fprintf(stderr, "wrong: %llu, not %llu\n", total, expected);
    return 3;
  }
  std::printf("reduction of %zu: %llu, as on the processor\n", length, total);
  return 0;
}
