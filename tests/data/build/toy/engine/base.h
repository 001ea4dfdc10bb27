#pragma once
#ifdef __cplusplus
extern "C" {
#endif
int base_answer(void);
const char * base_file(void);
#ifdef __cplusplus
}
#endif
