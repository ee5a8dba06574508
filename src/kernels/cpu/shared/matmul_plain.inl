// Products with F32, F16 and BF16 matrices in place.
//
// Weight and activation rows are read along K. An output is kLanes partial sums, lane k % kLanes,
// folded in one order at the end; kW x kM outputs are in flight at a time, so that a loaded vector
// is used several times. Included inside an ISA level's unnamed namespace, after its kLanes,
// Vector, zero, fma, fold and the loaders F32, F16, BF16.

[[gnu::always_inline]] inline void store_output(const ProductArgs& args, int64_t row, int64_t n,
                                                float value) {
  float* out = args.out + row * args.out_stride + n;
  if (args.bias != nullptr) value += args.bias[n];
  *out = args.accumulate ? *out + value : value;
}

// The last k % 8 elements of a row, the other lanes zero.
template <class W>
[[gnu::always_inline]] inline Vector load_tail(const uint8_t* p, int64_t count) {
  alignas(64) uint8_t padded[kLanes * sizeof(float)] = {};
  std::memcpy(padded, p, static_cast<size_t>(count) * W::kBytes);
  return W::load(padded);
}

// kW weight rows from n against kM activation rows from m.
template <class W, int kW, int kM>
void outputs(const ProductArgs& args, int64_t n, int64_t m) {
  const uint8_t* w[kW];
  const float* x[kM];
  for (int i = 0; i < kW; ++i) w[i] = args.low + (n + i) * args.k * W::kBytes;
  for (int j = 0; j < kM; ++j) x[j] = args.x + (m + j) * args.x_stride;
  Vector acc[kW][kM];
  for (auto& row : acc) {
    for (Vector& v : row) v = zero();
  }
  int64_t k = 0;
  for (; k + kLanes <= args.k; k += kLanes) {
    Vector a[kM];
#pragma GCC unroll 4
    for (int j = 0; j < kM; ++j) a[j] = F32::load(reinterpret_cast<const uint8_t*>(x[j] + k));
#pragma GCC unroll 8
    for (int i = 0; i < kW; ++i) {
      const Vector b = W::load(w[i] + k * W::kBytes);
#pragma GCC unroll 4
      for (int j = 0; j < kM; ++j) acc[i][j] = fma(b, a[j], acc[i][j]);
    }
  }
  if (k < args.k) {
    for (int i = 0; i < kW; ++i) {
      const Vector b = load_tail<W>(w[i] + k * W::kBytes, args.k - k);
      for (int j = 0; j < kM; ++j) {
        const Vector a = load_tail<F32>(reinterpret_cast<const uint8_t*>(x[j] + k), args.k - k);
        acc[i][j] = fma(b, a, acc[i][j]);
      }
    }
  }
  for (int i = 0; i < kW; ++i) {
    for (int j = 0; j < kM; ++j) store_output(args, m + j, n + i, fold(acc[i][j]));
  }
}

template <class W, int kW>
void weight_rows(const ProductArgs& args, int64_t n) {
  int64_t m = 0;
  for (; m + 3 <= args.rows; m += 3) outputs<W, kW, 3>(args, n, m);
  if (args.rows - m == 2) outputs<W, kW, 2>(args, n, m);
  if (args.rows - m == 1) outputs<W, kW, 1>(args, n, m);
}

template <class W>
void product(const ProductArgs& args) {
  const int64_t last = args.last_tile * kTileRows < args.n ? args.last_tile * kTileRows : args.n;
  int64_t n = args.first_tile * kTileRows;
  if (args.rows == 1) {
    for (; n + 8 <= last; n += 8) outputs<W, 8, 1>(args, n, 0);
  }
  for (; n + 4 <= last; n += 4) weight_rows<W, 4>(args, n);
  for (; n < last; ++n) weight_rows<W, 1>(args, n);
}
