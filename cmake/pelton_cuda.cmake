# The CUDA backend: nvcc for the kernels, the C++ compiler for everything else. Machine code for sm_90a alone
# (wgmma and its kin exist nowhere else, and PTX of it runs on no other chip).
if(NOT CMAKE_CUDA_COMPILER)
  find_program(PELTON_NVCC nvcc HINTS ${CUDAToolkit_ROOT}/bin /usr/local/cuda/bin REQUIRED)
  set(CMAKE_CUDA_COMPILER ${PELTON_NVCC})
endif()
if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
  set(CMAKE_CUDA_ARCHITECTURES 90a-real)
endif()
# The runtime is linked statically, so that the program starts where there is no driver.
set(CMAKE_CUDA_RUNTIME_LIBRARY Static)
enable_language(CUDA)
find_package(CUDAToolkit REQUIRED)
# nvcc knows C++20 since 12.0; CMake 3.25 does not know that.
if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
endif()
set(CMAKE_CUDA_STANDARD 20)
if(CCACHE_PROGRAM)
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${CCACHE_PROGRAM})
endif()

set(PELTON_CUDA_FLAGS -Xcompiler=-Wall,-Wextra,-Wno-unused-parameter --expt-relaxed-constexpr -lineinfo)
if(PELTON_WERROR)
  list(APPEND PELTON_CUDA_FLAGS -Werror=all-warnings)
endif()
add_compile_options("$<$<COMPILE_LANGUAGE:CUDA>:${PELTON_CUDA_FLAGS}>")
