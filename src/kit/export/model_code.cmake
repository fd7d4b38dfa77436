# Writes a C++ source with the code that `checkpoint export --hf-code` puts beside the weights:
#   cmake -DFOLDER=... -DOUT=... -P model_code.cmake
foreach(name IN ITEMS configuration_muograph.py modeling_muograph.py)
  file(READ ${FOLDER}/${name} text)
  string(APPEND files "    {\"${name}\", R\"code(${text})code\"},\n")
endforeach()
file(WRITE ${OUT} "#include \"kit/export/model_code.h\"\n\nnamespace muo::kit {\n\n"
     "const std::array<CodeFile, 2> kModelCode = {{\n${files}}};\n\n}  // namespace muo::kit\n")
