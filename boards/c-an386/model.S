/* The model file as it is, at an address that suits every load; MODEL_FILE is its path in quotes. */

    .section .rodata.model, "a"
    .balign 64
    .global model_file, model_file_end
model_file:
    .incbin MODEL_FILE
model_file_end:
