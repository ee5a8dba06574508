# What `cmake --install` puts where, and the Debian package: cmake --build build/release --target package.
include(GNUInstallDirs)
install(TARGETS pelton RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(FILES ${CMAKE_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/pelton RENAME copyright)
install(FILES ${CMAKE_SOURCE_DIR}/docs/serving.md ${CMAKE_SOURCE_DIR}/deploy/pelton.toml
  DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/pelton)
install(FILES ${CMAKE_SOURCE_DIR}/deploy/systemd/pelton.service DESTINATION lib/systemd/system)

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME pelton)
set(CPACK_PACKAGE_CONTACT "The Pelton authors <pelton@localhost>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "inference engine and OpenAI-compatible server for large language models")
set(CPACK_PACKAGE_DESCRIPTION "Runs and serves large language models from GGUF files and Hugging Face folders: one program
without a Python run time, with continuous batching, paged KV cache, metrics and a web page.")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
# Outside of the prefix, and for the package alone.
file(COPY ${CMAKE_SOURCE_DIR}/deploy/pelton.toml DESTINATION ${CMAKE_BINARY_DIR}/package/etc/pelton)
set(CPACK_INSTALLED_DIRECTORIES ${CMAKE_BINARY_DIR}/package /)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_DEBIAN_PACKAGE_CONTROL_EXTRA ${CMAKE_SOURCE_DIR}/deploy/debian/conffiles ${CMAKE_SOURCE_DIR}/deploy/debian/postinst
  ${CMAKE_SOURCE_DIR}/deploy/debian/prerm ${CMAKE_SOURCE_DIR}/deploy/debian/postrm)
include(CPack)
