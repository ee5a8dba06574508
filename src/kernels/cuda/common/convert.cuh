// Stored numbers as floats and back, rounded to nearest even.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <cstdint>

namespace pelton::kernels::cuda {

__device__ inline float to_float(float v) { return v; }
__device__ inline float to_float(__half v) { return __half2float(v); }
__device__ inline float to_float(__nv_bfloat16 v) { return __bfloat162float(v); }
__device__ inline float to_float(__nv_fp8_e4m3 v) { return static_cast<float>(v); }
__device__ inline float to_float(int8_t v) { return static_cast<float>(v); }

template <typename T>
__device__ inline T from_float(float v);
template <>
__device__ inline float from_float<float>(float v) {
  return v;
}
template <>
__device__ inline __half from_float<__half>(float v) {
  return __float2half_rn(v);
}
template <>
__device__ inline __nv_bfloat16 from_float<__nv_bfloat16>(float v) {
  return __float2bfloat16_rn(v);
}
template <>
__device__ inline __nv_fp8_e4m3 from_float<__nv_fp8_e4m3>(float v) {
  __nv_fp8_e4m3 out;
  out.__x = __nv_cvt_float_to_fp8(v, __NV_SATFINITE, __NV_E4M3);
  return out;
}

// Four consecutive elements, aligned to their size.
template <typename T>
struct Four;
template <>
struct Four<float> {
  __device__ static float4 load(const float* p) { return *reinterpret_cast<const float4*>(p); }
};
template <>
struct Four<__half> {
  __device__ static float4 load(const __half* p) {
    const uint2 raw = *reinterpret_cast<const uint2*>(p);
    const float2 low = __half22float2(*reinterpret_cast<const __half2*>(&raw.x));
    const float2 high = __half22float2(*reinterpret_cast<const __half2*>(&raw.y));
    return {low.x, low.y, high.x, high.y};
  }
};
template <>
struct Four<__nv_bfloat16> {
  __device__ static float4 load(const __nv_bfloat16* p) {
    const uint2 raw = *reinterpret_cast<const uint2*>(p);
    return {__uint_as_float(raw.x << 16), __uint_as_float(raw.x & 0xFFFF0000u),
            __uint_as_float(raw.y << 16), __uint_as_float(raw.y & 0xFFFF0000u)};
  }
};

template <>
struct Four<int8_t> {
  __device__ static float4 load(const int8_t* p) {
    const char4 v = *reinterpret_cast<const char4*>(p);
    return {static_cast<float>(v.x), static_cast<float>(v.y), static_cast<float>(v.z),
            static_cast<float>(v.w)};
  }
};
template <>
struct Four<__nv_fp8_e4m3> {
  __device__ static float4 load(const __nv_fp8_e4m3* p) {
    return static_cast<float4>(*reinterpret_cast<const __nv_fp8x4_e4m3*>(p));
  }
};

}  // namespace pelton::kernels::cuda
