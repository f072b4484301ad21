// C = A * B for whole numbers, one thread per element of C, tiles of A and B in shared memory.
//
//   matrix_multiply [M [N [K]]]      C is M x N, K the length of the sums (default 257 x 123, 511)
//
// Sizes need not be multiples of the block: a thread beyond the edge brings zeros into the tiles
// and writes nothing. Sums wrap around as unsigned numbers do, on both sides alike.

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

constexpr int TILE = 16;

__global__ void matrix_multiply(const unsigned *a, const unsigned *b, unsigned *c, int m, int n,
                                int k) {
  __shared__ unsigned part_a[TILE][TILE], part_b[TILE][TILE];
  int row = blockIdx.y * TILE + threadIdx.y;
  int column = blockIdx.x * TILE + threadIdx.x;
  unsigned sum = 0;
  for (int from = 0; from < k; from += TILE) {
    int across = from + threadIdx.x, down = from + threadIdx.y;
    part_a[threadIdx.y][threadIdx.x] =
        row < m && across < k ? a[static_cast<size_t>(row) * k + across] : 0;
    part_b[threadIdx.y][threadIdx.x] =
        down < k && column < n ? b[static_cast<size_t>(down) * n + column] : 0;
    __syncthreads();  // every thread of the block comes here, also those beyond the edge
    for (int at = 0; at < TILE; ++at) sum += part_a[threadIdx.y][at] * part_b[at][threadIdx.x];
    __syncthreads();
  }
  if (row < m && column < n) c[static_cast<size_t>(row) * n + column] = sum;
}

int main(int count, char **words) {
  int m = count > 1 ? std::atoi(words[1]) : 257;
  int n = count > 2 ? std::atoi(words[2]) : count > 1 ? m : 123;
  int k = count > 3 ? std::atoi(words[3]) : count > 1 ? m : 511;
  if (m < 1 || n < 1 || k < 1) {
    std::fprintf(stderr, "usage: %s [M [N [K]]], all at least 1\n", words[0]);
    return 1;
  }
  std::vector<unsigned> a(static_cast<size_t>(m) * k), b(static_cast<size_t>(k) * n);
  std::vector<unsigned> c(static_cast<size_t>(m) * n), expected(c.size(), 0);
  for (size_t at = 0; at < a.size(); ++at) a[at] = static_cast<unsigned>(at * 31 % 1009);
  for (size_t at = 0; at < b.size(); ++at) b[at] = static_cast<unsigned>(at * 17 % 2003);

  unsigned *device_a, *device_b, *device_c;
  CHECK(cudaMalloc(&device_a, a.size() * sizeof(unsigned)));
  CHECK(cudaMalloc(&device_b, b.size() * sizeof(unsigned)));
  CHECK(cudaMalloc(&device_c, c.size() * sizeof(unsigned)));
  CHECK(cudaMemcpy(device_a, a.data(), a.size() * sizeof(unsigned), cudaMemcpyHostToDevice));
  CHECK(cudaMemcpy(device_b, b.data(), b.size() * sizeof(unsigned), cudaMemcpyHostToDevice));

  dim3 block(TILE, TILE);
  dim3 grid((n + TILE - 1) / TILE, (m + TILE - 1) / TILE);
  matrix_multiply<<<grid, block>>>(device_a, device_b, device_c, m, n, k);
  CHECK(cudaGetLastError());
  CHECK(cudaDeviceSynchronize());
  CHECK(cudaMemcpy(c.data(), device_c, c.size() * sizeof(unsigned), cudaMemcpyDeviceToHost));
  CHECK(cudaFree(device_a));
  CHECK(cudaFree(device_b));
  CHECK(cudaFree(device_c));

  for (int row = 0; row < m; ++row)
    for (int at = 0; at < k; ++at)  // this order runs along the rows of B
      for (int column = 0; column < n; ++column)
        expected[static_cast<size_t>(row) * n + column] +=
            a[static_cast<size_t>(row) * k + at] * b[static_cast<size_t>(at) * n + column];
  for (size_t at = 0; at < c.size(); ++at) {
    if (c[at] != expected[at]) {
      std::fprintf(stderr, "wrong at row %zu, column %zu: %u, not %u\n", at / n, at % n, c[at],
                   expected[at]);
      return 3;
    }
  }
  std::printf("matrix_multiply %d x %d by %d x %d: %zu elements, all as on the processor\n", m, k,
              k, n, c.size());
  return 0;
}
