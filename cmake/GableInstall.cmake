# What `cmake --install` puts where, besides plugins and the command (gable_product() in GableTargets.cmake). Every path
# is relative to the installed files themselves, so that a tree may be moved. Nothing that libgable is made with (Highway,
# OpenMP, fmt) is a consumer's concern: it is a shared library, and its headers need only the C++ standard library.
include(CMakePackageConfigHelpers)

set(gable_package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/gable)

# The component `library` is libgable and its plugins, all that a Python wheel has besides Python (pyproject.toml).
install(TARGETS gable EXPORT gableTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT library NAMELINK_COMPONENT development)
install(DIRECTORY api/include/gable DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} PATTERN measure.h EXCLUDE)
# gable for NumPy: the folder is for PYTHONPATH, and the package finds libgable of its own tree.
install(DIRECTORY api/python/ DESTINATION ${CMAKE_INSTALL_DATADIR}/gable/python FILES_MATCHING PATTERN "*.py" PATTERN __pycache__ EXCLUDE)
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(EXPORT gableTargets NAMESPACE gable:: DESTINATION ${gable_package_dir})
# The component `measure` has its header, targets and .pc file by itself: a build without the command lacks it.
if(TARGET gable_measure)
  install(TARGETS gable_measure EXPORT gableMeasureTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
  install(FILES api/include/gable/measure.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/gable)
  install(EXPORT gableMeasureTargets NAMESPACE gable:: DESTINATION ${gable_package_dir})
endif()
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
set(pkgconfig_packages gable)
if(TARGET gable_measure)
  list(APPEND pkgconfig_packages gable-measure)
endif()
foreach(package IN LISTS pkgconfig_packages)
  configure_file(cmake/${package}.pc.in ${PROJECT_BINARY_DIR}/${package}.pc @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/${package}.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
endforeach()
