// c = a + b for a vector of any length: a grid of fixed size strides over it.
//
//   vector_add [LENGTH]      (default 1000003)
//
// Adding two floats is exact up to one rounding, the same on both sides, so results are compared
// for equality.

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

__global__ void vector_add(const float *a, const float *b, float *c, size_t length) {
  size_t stride = static_cast<size_t>(gridDim.x) * blockDim.x;
  size_t first = static_cast<size_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  for (size_t at = first; at < length; at += stride) c[at] = a[at] + b[at];
}

int main(int count, char **words) {
  long long wanted = count > 1 ? std::atoll(words[1]) : 1000003;
  if (wanted < 1) {
    std::fprintf(stderr, "usage: %s [LENGTH], at least 1\n", words[0]);
    return 1;
  }
  size_t length = static_cast<size_t>(wanted), bytes = length * sizeof(float);
  std::vector<float> a(length), b(length), c(length, -1.0f);
  for (size_t at = 0; at < length; ++at) {
    a[at] = static_cast<float>(at % 1000) * 0.5f;
    b[at] = static_cast<float>(at % 777) * 0.25f;
  }

  float *device_a, *device_b, *device_c;
  CHECK(cudaMalloc(&device_a, bytes));
  CHECK(cudaMalloc(&device_b, bytes));
  CHECK(cudaMalloc(&device_c, bytes));
  CHECK(cudaMemcpy(device_a, a.data(), bytes, cudaMemcpyHostToDevice));
  CHECK(cudaMemcpy(device_b, b.data(), bytes, cudaMemcpyHostToDevice));
  vector_add<<<256, 256>>>(device_a, device_b, device_c, length);
  CHECK(cudaGetLastError());
  CHECK(cudaDeviceSynchronize());
  CHECK(cudaMemcpy(c.data(), device_c, bytes, cudaMemcpyDeviceToHost));
  CHECK(cudaFree(device_a));
  CHECK(cudaFree(device_b));
  CHECK(cudaFree(device_c));

  for (size_t at = 0; at < length; ++at) {
    if (c[at] != a[at] + b[at]) {
      std::fprintf(stderr, "wrong at %zu: %g, not %g\n", at, c[at], a[at] + b[at]);
      return 3;
    }
  }
  std::printf("vector_add %zu: all as on the processor\n", length);
  return 0;
}
