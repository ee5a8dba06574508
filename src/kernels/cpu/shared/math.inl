// Elementary functions over Vec. Included inside a level's unnamed namespace, after its vec.h.
// Polynomials are least-maximum fits; errors are stated against exact values.

[[gnu::always_inline]] inline Vec horner(Vec /*x*/, Vec sum) { return sum; }
template <typename... Rest>
[[gnu::always_inline]] inline Vec horner(Vec x, Vec sum, float next, Rest... rest) {
  return horner(x, fma(sum, x, splat(next)), rest...);
}

// Relative error below 2 units in the last place; exactly 1 at 0; exactly 0 below -87.33 (the
// result would be subnormal) and at -infinity; clamped above 88.37; NaN stays NaN.
[[gnu::always_inline]] inline Vec exp(Vec x) {
  const Vec lowest = splat(-87.33f);
  const Vec clamped = min(splat(88.37f), max(lowest, x));
  const Vec n = round_nearest(clamped * splat(1.44269504f));
  // ln 2 in two parts, the first short enough that n times it is exact.
  const Vec r = fnma(n, splat(-2.12194440e-4f), fnma(n, splat(0.693359375f), clamped));
  const Vec p = horner(r, splat(1.381459634e-03f), 8.368717091e-03f, 4.166838809e-02f,
                       1.666652063e-01f, 4.999999345e-01f);
  const Vec e = (fma(r * r, p, r) + splat(1.0f)) * power_of_two(n);
  return select(less(x, lowest), zero(), e);
}

// 1 / (1 + exp(-x)); exactly 0 below -88.37.
[[gnu::always_inline]] inline Vec sigmoid(Vec x) {
  const Vec y = splat(1.0f) / (splat(1.0f) + exp(zero() - x));
  return select(less(x, splat(-88.37f)), zero(), y);
}

// Relative error below 4 units in the last place.
[[gnu::always_inline]] inline Vec tanh(Vec x) {
  const Vec magnitude = abs(x);
  const Vec z = x * x;
  const Vec p = horner(z, splat(-5.603905451e-03f), 2.055171065e-02f, -5.371410423e-02f,
                       1.333115276e-01f, -3.333327208e-01f);
  const Vec small = fma(x * z, p, x);
  const Vec large = splat(1.0f) - splat(2.0f) / (exp(magnitude + magnitude) + splat(1.0f));
  return select(less(magnitude, splat(0.625f)), small, copy_sign(large, x));
}

// Absolute error below 2^-23.
[[gnu::always_inline]] inline Vec erf(Vec x) {
  const Vec magnitude = abs(x);
  const Vec small =
      x * horner(x * x, splat(7.853857698e-05f), -8.010192518e-04f, 5.188327560e-03f,
                 -2.685381187e-02f, 1.128358515e-01f, -3.761262582e-01f, 1.128379166e+00f);
  // log(1 - erf) on [1, 4]; beyond 4 erf is 1 in f32.
  const Vec log_tail = horner(
      min(splat(4.0f), magnitude), splat(-2.168685031e-05f), 4.413363817e-04f, -4.204561899e-03f,
      2.520825681e-02f, -1.084185775e-01f, -6.332198930e-01f, -1.129578424e+00f, 1.880402462e-04f);
  const Vec large = copy_sign(splat(1.0f) - exp(log_tail), x);
  return select(less(magnitude, splat(1.0f)), small, large);
}
