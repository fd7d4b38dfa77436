# For `cmake --install` and CPack packages: the program, its libraries in a folder of their own, and the files for
# users. The installed folder can be moved as a whole.
include(GNUInstallDirs)
set(muo_libraries ${CMAKE_INSTALL_LIBDIR}/muograph)
file(RELATIVE_PATH to_libraries /${CMAKE_INSTALL_BINDIR} /${muo_libraries})
if(NOT DEFINED CMAKE_INSTALL_RPATH)  # the gpu preset sets it: programs and libraries share one folder
  set_target_properties(muograph PROPERTIES INSTALL_RPATH "$ORIGIN/${to_libraries}")
endif()
# For libraries that are not from system packages: those of a toolkit, or those that setup.sh fetched without root.
set_target_properties(muograph_core muograph_http muograph_sentencepiece muograph_oniguruma PROPERTIES
                      INSTALL_RPATH_USE_LINK_PATH ON)

install(TARGETS muograph COMPONENT program)
install(TARGETS muograph_core muograph_http muograph_sentencepiece muograph_oniguruma COMPONENT program
        LIBRARY DESTINATION ${muo_libraries})
if(TARGET muograph_core_avx512)
  set_target_properties(muograph_core_avx512 PROPERTIES INSTALL_RPATH_USE_LINK_PATH ON)
  install(TARGETS muograph_core_avx512 COMPONENT program
          LIBRARY DESTINATION ${muo_libraries}/glibc-hwcaps/x86-64-v4)
endif()
install(DIRECTORY configs DESTINATION ${CMAKE_INSTALL_DATADIR}/muograph COMPONENT program
        FILES_MATCHING PATTERN *.toml)
set(scripts convert_nanochat.py convert_nanochat_tokenizer.py convert_nanogpt_data.py fetch_fineweb.sh plot_curve.py
            read_parquet.py sweep_with_optuna.py watch_wandb.py)  # the scripts that are independent of the repository
list(TRANSFORM scripts PREPEND scripts/)
install(PROGRAMS ${scripts} DESTINATION ${CMAKE_INSTALL_DATADIR}/muograph/scripts COMPONENT program)
install(FILES build/third_party/plotly/plotly.min.js COMPONENT program OPTIONAL  # scripts/fetch_plotly.sh
        DESTINATION ${CMAKE_INSTALL_DATADIR}/muograph)
install(FILES build/third_party/plotly/licenses/LICENSE.txt RENAME LICENSE.plotly COMPONENT program OPTIONAL
        DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(FILES README.md LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT program)
install(FILES src/cli/completion/muograph.bash RENAME muograph COMPONENT program
        DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
foreach(folder IN ITEMS site-functions vendor-completions)  # the latter is Debian's
  install(FILES src/cli/completion/_muograph COMPONENT program
          DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/${folder})
endforeach()
set(CPACK_COMPONENTS_ALL program)
if(TARGET muograph_mpi)
  set_target_properties(muograph_mpi PROPERTIES INSTALL_RPATH "$ORIGIN" INSTALL_RPATH_USE_LINK_PATH ON)
  install(TARGETS muograph_mpi LIBRARY DESTINATION ${muo_libraries} COMPONENT mpi OPTIONAL)
  list(APPEND CPACK_COMPONENTS_ALL mpi)
endif()
if(TARGET muograph_cuda)
  # MUO_CUDA_RPATH: an additional folder in which the plug-in finds CUDA's libraries, for a Python package.
  set_target_properties(muograph_cuda PROPERTIES INSTALL_RPATH "$ORIGIN;${MUO_CUDA_RPATH}"
                        INSTALL_RPATH_USE_LINK_PATH ON)
  install(TARGETS muograph_cuda LIBRARY DESTINATION ${muo_libraries} COMPONENT cuda OPTIONAL)
  list(APPEND CPACK_COMPONENTS_ALL cuda)
endif()

# Builds muograph.deb and, with the respective plug-in, muograph-cuda.deb and muograph-mpi.deb: `cpack --config
# build/release/CPackConfig.cmake`.
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_CONTACT "the muograph authors")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "Trains GPTs on CPUs and NVIDIA GPUs")
set(CPACK_PACKAGE_DIRECTORY ${CMAKE_BINARY_DIR})
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_ENABLE_COMPONENT_DEPENDS ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PROGRAM_PACKAGE_NAME muograph)
set(CPACK_DEBIAN_PROGRAM_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${CMAKE_BINARY_DIR})
# No dependency on CUDA's libraries: they come from one of several NVIDIA packages, or from none.
set(CPACK_DEBIAN_CUDA_PACKAGE_NAME muograph-cuda)
set(CPACK_DEBIAN_CUDA_PACKAGE_DEPENDS "muograph (= ${PROJECT_VERSION})")
set(CPACK_DEBIAN_CUDA_DESCRIPTION "CUDA backend of muograph, for CUDA 13's libraries")
set(CPACK_DEBIAN_MPI_PACKAGE_NAME muograph-mpi)
set(CPACK_DEBIAN_MPI_PACKAGE_DEPENDS "muograph (= ${PROJECT_VERSION}), openmpi-bin")
set(CPACK_DEBIAN_MPI_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_MPI_DESCRIPTION "Exchange between processes of muograph, by Open MPI")
include(CPack)
