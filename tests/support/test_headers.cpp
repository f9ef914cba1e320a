// CMake precompiles headers for a target with a file to compile only.
int main() {}
