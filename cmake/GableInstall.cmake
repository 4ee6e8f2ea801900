# What `cmake --install` puts where. Every path is relative to the installed files themselves, so that a tree may be
# moved; plugins lie in a folder beside libgable, where its loader looks. Nothing that libgable is made with (Highway,
# OpenMP, fmt) is a consumer's concern: it is a shared library, and its headers need only the C++ standard library.
include(CMakePackageConfigHelpers)

set(gable_package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/gable)
set(gable_products gable)

install(TARGETS gable EXPORT gableTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY api/include/gable DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})

# Those of the plugins that this machine's libraries allow; each says in its own room that it is installed.
foreach(plugin IN ITEMS gable_cuda gable_onednn)
  if(TARGET ${plugin})
    set_target_properties(${plugin} PROPERTIES INSTALL_RPATH "$ORIGIN/..")
    list(APPEND gable_products ${plugin})
  endif()
endforeach()

if(TARGET gable_cupti)
  list(APPEND gable_products gable_cupti)
endif()

if(TARGET gable_command)
  file(RELATIVE_PATH libdir_from_bindir ${CMAKE_INSTALL_FULL_BINDIR} ${CMAKE_INSTALL_FULL_LIBDIR})
  set_target_properties(gable_command PROPERTIES INSTALL_RPATH "$ORIGIN/${libdir_from_bindir}")
  install(TARGETS gable_command RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  list(APPEND gable_products gable_command)
endif()

# What a user of gable needs and no more: libgable, its plugins, the command. `./run roofline` builds this.
add_custom_target(gable_products DEPENDS ${gable_products})

install(EXPORT gableTargets NAMESPACE gable:: DESTINATION ${gable_package_dir})
configure_package_config_file(cmake/gableConfig.cmake.in ${PROJECT_BINARY_DIR}/gableConfig.cmake
  INSTALL_DESTINATION ${gable_package_dir})
# Before 1.0 each minor version may break its users, as the soname says too.
write_basic_package_version_file(${PROJECT_BINARY_DIR}/gableConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/gableConfig.cmake ${PROJECT_BINARY_DIR}/gableConfigVersion.cmake
  DESTINATION ${gable_package_dir})

# The .pc file finds its prefix from where it lies. cmake_path(APPEND) keeps absolute folders as they are.
file(RELATIVE_PATH prefix_from_pkgconfig ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
string(REGEX REPLACE "/$" "" prefix_from_pkgconfig "${prefix_from_pkgconfig}")
set(pkgconfig_libdir "\${prefix}")
cmake_path(APPEND pkgconfig_libdir ${CMAKE_INSTALL_LIBDIR})
set(pkgconfig_includedir "\${prefix}")
cmake_path(APPEND pkgconfig_includedir ${CMAKE_INSTALL_INCLUDEDIR})
configure_file(cmake/gable.pc.in ${PROJECT_BINARY_DIR}/gable.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/gable.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
