// What AdapterTest needs of llama.cpp: an adapter that is loaded.
#include <jni.h>

#include <string>

#include <llama.h>

extern "C" JNIEXPORT jlong JNICALL Java_io_github_dormousekv_sample_AdapterTest_load(JNIEnv *env, jclass, jlong context, jbyteArray path) {
	std::string file(env->GetArrayLength(path), 0);
	env->GetByteArrayRegion(path, 0, (jsize)file.size(), reinterpret_cast<jbyte *>(&file[0]));
	llama_model *model = const_cast<llama_model *>(llama_get_model(reinterpret_cast<llama_context *>(context)));
	return reinterpret_cast<jlong>(llama_adapter_lora_init(model, file.c_str())); // goes with the model
}
