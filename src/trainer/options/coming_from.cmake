# Writes docs/coming_from.md as a C++ source: cmake -DFILE=... -DOUT=... -P coming_from.cmake
file(READ ${FILE} text)
file(WRITE ${OUT} "#include \"trainer/options/foreign_options.h\"\n\nnamespace muo::trainer {\n\n"
     "const std::string_view kComingFrom = R\"text(${text})text\";\n\n}  // namespace muo::trainer\n")
