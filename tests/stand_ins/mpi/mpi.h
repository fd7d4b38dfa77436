#pragma once

// The part of MPI that src/runtime/mpi calls, for tests; mpi_stand_in.h describes it.

// NOLINTBEGIN(readability-identifier-naming): MPI's names

extern "C" {

using MPI_Comm = int;
using MPI_Datatype = int;
using MPI_Errhandler = int;
using MPI_Request = int;  // its number, from 1 on
struct MPI_Status {
  int MPI_SOURCE, MPI_TAG, MPI_ERROR;
  int bytes;
};

inline constexpr MPI_Comm MPI_COMM_WORLD = 71;
inline constexpr MPI_Datatype MPI_BYTE = 72;
inline constexpr MPI_Errhandler MPI_ERRORS_RETURN = 73;
inline constexpr MPI_Request MPI_REQUEST_NULL = 0;
enum { MPI_THREAD_SINGLE, MPI_THREAD_FUNNELED, MPI_THREAD_SERIALIZED, MPI_THREAD_MULTIPLE };
enum { MPI_SUCCESS, MPI_ERR_TRUNCATE, MPI_ERR_OTHER, MPI_ERR_IN_STATUS, MPI_ERR_PENDING };
inline constexpr int MPI_MAX_ERROR_STRING = 100, MPI_MAX_LIBRARY_VERSION_STRING = 100;

int MPI_Initialized(int* flag);
int MPI_Init_thread(int* argc, char*** argv, int required, int* provided);
int MPI_Finalize();
int MPI_Comm_rank(MPI_Comm comm, int* rank);
int MPI_Comm_size(MPI_Comm comm, int* size);
int MPI_Comm_set_errhandler(MPI_Comm comm, MPI_Errhandler handler);
int MPI_Error_string(int code, char* text, int* size);
int MPI_Get_library_version(char* text, int* size);
int MPI_Irecv(void* data, int count, MPI_Datatype type, int source, int tag, MPI_Comm comm,
              MPI_Request* request);
int MPI_Isend(const void* data, int count, MPI_Datatype type, int destination, int tag,
              MPI_Comm comm, MPI_Request* request);
int MPI_Testall(int count, MPI_Request requests[], int* flag, MPI_Status statuses[]);
int MPI_Get_count(const MPI_Status* status, MPI_Datatype type, int* count);

}  // extern "C"

// NOLINTEND(readability-identifier-naming)
