# libtorch: TORCH_LIBRARIES, TORCH_INCLUDE_DIRS, and the targets torch_cpu and, of one for CUDA, torch_cuda.
# -DTorch_DIR says which, where there are several.
#
# The package files of a libtorch for CUDA ask CMake for the whole toolkit, its compiler and cuDNN's headers,
# before they say where a library lies. So its libraries are found here; what of the toolkit there is decides
# how much of src/ops/cuda is built: headers the products and attention, nvcc the kernels.
if(Torch_DIR)
  set(torch_places PATHS ${Torch_DIR}/../.. ${Torch_DIR}/../../../lib NO_DEFAULT_PATH)
endif()
find_library(TORCH_CUDA_LIBRARY torch_cuda ${torch_places})

if(NOT TORCH_CUDA_LIBRARY)
  find_package(Torch REQUIRED)
  return()
endif()

get_filename_component(torch_lib ${TORCH_CUDA_LIBRARY} DIRECTORY)
foreach(name c10 c10_cuda torch_cpu torch_cuda torch)
  find_library(DANLU_${name}_LIBRARY ${name} PATHS ${torch_lib} NO_DEFAULT_PATH REQUIRED)
  add_library(${name} SHARED IMPORTED)
  set_target_properties(${name} PROPERTIES IMPORTED_LOCATION ${DANLU_${name}_LIBRARY})
endforeach()
find_path(TORCH_INCLUDE ATen/ATen.h PATHS ${torch_lib}/../include NO_DEFAULT_PATH)
find_path(TORCH_INCLUDE ATen/ATen.h REQUIRED)
file(STRINGS ${TORCH_INCLUDE}/torch/csrc/api/include/torch/version.h version REGEX "define TORCH_VERSION_M(AJ|IN)OR ")
string(REGEX REPLACE "[^;]*MAJOR ([0-9]+);[^;]*MINOR ([0-9]+)" "\\1.\\2" TORCH_VERSION "${version}")
set(TORCH_INCLUDE_DIRS ${TORCH_INCLUDE} ${TORCH_INCLUDE}/torch/csrc/api/include)
# Its kernels register themselves when it is loaded, and no symbol of it need be named for that.
set(TORCH_LIBRARIES torch torch_cpu c10 c10_cuda
    "-Wl,--push-state,--no-as-needed,${DANLU_torch_cuda_LIBRARY},--pop-state")

set(toolkit HINTS ${CUDAToolkit_ROOT} ENV CUDA_PATH /usr/local/cuda)
find_path(CUDA_INCLUDE cuda_runtime_api.h ${toolkit} PATH_SUFFIXES include)
find_library(CUDART_LIBRARY cudart ${toolkit} PATH_SUFFIXES lib64)
find_library(CUBLAS_LIBRARY cublas ${toolkit} PATH_SUFFIXES lib64)
find_path(CUBLAS_INCLUDE cublas_v2.h ${toolkit} PATH_SUFFIXES include)
# What libtorch says of the NCCL inside it needs NCCL's own header.
find_path(NCCL_INCLUDE nccl.h)
set(DANLU_CUDA OFF)
if(CUDA_INCLUDE AND CUDART_LIBRARY AND CUBLAS_LIBRARY AND CUBLAS_INCLUDE)
  set(DANLU_CUDA ON)
  list(APPEND TORCH_LIBRARIES ${CUDART_LIBRARY} ${CUBLAS_LIBRARY})
  if(NOT CUDA_INCLUDE STREQUAL "/usr/include")
    list(APPEND TORCH_INCLUDE_DIRS ${CUDA_INCLUDE})
  endif()
  include(CheckLanguage)
  check_language(CUDA)
endif()
message(STATUS "libtorch ${TORCH_VERSION} for CUDA: ${TORCH_CUDA_LIBRARY}; toolkit's headers: ${DANLU_CUDA}; nvcc: ${CMAKE_CUDA_COMPILER}")
