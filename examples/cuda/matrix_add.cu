// C = A + B for whole numbers, one thread per element.
//
//   matrix_add [ROWS [COLUMNS]]      (default 1003 x 517: no multiples of the block's 5 x 5)
//
// The grid is rounded up, so threads beyond the edge must do nothing: that is the guard in the
// kernel. The result is compared with the processor's, element by element.

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

__global__ void matrix_add(const int *a, const int *b, int *c, int rows, int columns) {
  int row = blockIdx.y * blockDim.y + threadIdx.y;
  int column = blockIdx.x * blockDim.x + threadIdx.x;
  if (row < rows && column < columns) {
    size_t at = static_cast<size_t>(row) * columns + column;
    c[at] = a[at] + b[at];
  }
}

int main(int count, char **words) {
  int rows = count > 1 ? std::atoi(words[1]) : 1003;
  int columns = count > 2 ? std::atoi(words[2]) : count > 1 ? rows : 517;
  if (rows < 1 || columns < 1) {
    std::fprintf(stderr, "usage: %s [ROWS [COLUMNS]], both at least 1\n", words[0]);
    return 1;
  }
  size_t elements = static_cast<size_t>(rows) * columns, bytes = elements * sizeof(int);
  std::vector<int> a(elements), b(elements), c(elements, -1);
  for (size_t at = 0; at < elements; ++at) {
    a[at] = static_cast<int>(at % 1009);
    b[at] = static_cast<int>(at * 7 % 2003) - 1000;
  }

  int *device_a, *device_b, *device_c;
  CHECK(cudaMalloc(&device_a, bytes));
  CHECK(cudaMalloc(&device_b, bytes));
  CHECK(cudaMalloc(&device_c, bytes));
  CHECK(cudaMemcpy(device_a, a.data(), bytes, cudaMemcpyHostToDevice));
  CHECK(cudaMemcpy(device_b, b.data(), bytes, cudaMemcpyHostToDevice));

  dim3 block(5, 5);
  dim3 grid((columns + block.x - 1) / block.x, (rows + block.y - 1) / block.y);
  matrix_add<<<grid, block>>>(device_a, device_b, device_c, rows, columns);
  CHECK(cudaGetLastError());
  CHECK(cudaDeviceSynchronize());
  CHECK(cudaMemcpy(c.data(), device_c, bytes, cudaMemcpyDeviceToHost));
  CHECK(cudaFree(device_a));
  CHECK(cudaFree(device_b));
  CHECK(cudaFree(device_c));

  for (size_t at = 0; at < elements; ++at) {
    if (c[at] != a[at] + b[at]) {
      std::fprintf(stderr, "wrong at row %zu, column %zu: %d, not %d\n", at / columns,
                   at % columns, c[at], a[at] + b[at]);
      return 3;
    }
  }
  std::printf("matrix_add %d x %d: %zu elements, all as on the processor\n", rows, columns,
              elements);
  return 0;
}
