// The ABI number of the contract between libgable and its plugins. libgable refuses a plugin with another number,
// because the virtual functions or layouts of its classes may differ.
//
// tests/backends/abi_test fails when gable/backend.h, gable/study_backend.h or a header that they include changes. It
// then prints what to write here: the next number, and the checksum of the changed headers.
#pragma once

/// Checksum of the headers: 0xeaae53b026298851
#define GABLE_PLUGIN_ABI 14
