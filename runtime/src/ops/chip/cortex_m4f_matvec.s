@ Products of rows in f32, f16 and bf16 and a vector; the macros are those of cortex_m4f_macros.s.

@ Elements of a row, widened. The f32 and bf16 forms leave element i in s(8+i); the f16 form leaves the even ones in s12-s15 and the odd ones in s8-s11.
.macro LOAD8_F16 p
    vldmia \p!, {s8-s11}
    vcvtb.f32.f16 s12, s8
    vcvtt.f32.f16 s8, s8
    vcvtb.f32.f16 s13, s9
    vcvtt.f32.f16 s9, s9
    vcvtb.f32.f16 s14, s10
    vcvtt.f32.f16 s10, s10
    vcvtb.f32.f16 s15, s11
    vcvtt.f32.f16 s11, s11
.endm

@ Two bfloat16 of a word to \even and the register after it.
.macro WIDEN_BF16 word, even, odd
    lsl lr, \word, #16
    bfc \word, #0, #16
    vmov \even, \odd, lr, \word
.endm

.macro LOAD8_BF16 p
    ldmia \p!, {r8-r10, r12}
    WIDEN_BF16 r8, s8, s9
    WIDEN_BF16 r9, s10, s11
    WIDEN_BF16 r10, s12, s13
    WIDEN_BF16 r12, s14, s15
.endm

@ Eight elements of both rows (pointers r0 and r5) times eight of x (pointer r7); \do is MUL8 at the beginning of a row, then MULADD8.
.macro BLOCK_F32 do
    vldmia r7!, {s0-s7}
    vldmia r0!, {s8-s15}
    \do s16, s17, s18, s19, s20, s21, s22, s23, s8, s9, s10, s11, s12, s13, s14, s15
    vldmia r5!, {s8-s15}
    \do s24, s25, s26, s27, s28, s29, s30, s31, s8, s9, s10, s11, s12, s13, s14, s15
.endm

.macro BLOCK_F16 do
    vldmia r7!, {s0-s7}
    LOAD8_F16 r0
    \do s16, s17, s18, s19, s20, s21, s22, s23, s12, s8, s13, s9, s14, s10, s15, s11
    LOAD8_F16 r5
    \do s24, s25, s26, s27, s28, s29, s30, s31, s12, s8, s13, s9, s14, s10, s15, s11
.endm

.macro BLOCK_BF16 do
    vldmia r7!, {s0-s7}
    LOAD8_BF16 r0
    \do s16, s17, s18, s19, s20, s21, s22, s23, s8, s9, s10, s11, s12, s13, s14, s15
    LOAD8_BF16 r5
    \do s24, s25, s26, s27, s28, s29, s30, s31, s8, s9, s10, s11, s12, s13, s14, s15
.endm

@ void f(const T *w, const float *x, size_t n, size_t stride, float *out, float *out_end)
@ out[r] = dot8(w + r * stride bytes, x) for an even number of rows, two at a time, eight lanes each: s16-s23 and s24-s31. n is 8 at least. What is left of a row after its whole blocks of
@ eight is copied to the stack, where zeros follow, and is a block too: products of zeros change no lane that counts.
@ r0, r5 rows; r7 x; r1 its start, r6 the end of its whole blocks; r2 n & 7, negative in the last block; r3 stride; r4 out; r11 from the end of a row to the start of the next; r8-r10, r12, lr
@ scratch.
@ On the stack the last blocks of x and of the two rows, 32 bytes each, then r5 and r6 while those are multiplied.
.macro MATVEC name, shift, block
    FUNCTION \name
    push {r4-r11, lr}
    vpush {s16-s31}
    ldr r4, [sp, #100]
    sub r11, r3, r2, lsl #\shift
    bic r5, r2, #7
    add r6, r1, r5, lsl #2
    ands r2, r2, #7
    sub sp, sp, #104
    beq 10f
    movs r12, #0
    mov r8, #96
1:  subs r8, r8, #4
    str r12, [sp, r8]
    bne 1b
2:  ldr r12, [r6, r8, lsl #2]
    str r12, [sp, r8, lsl #2]
    adds r8, r8, #1
    cmp r8, r2
    bne 2b
10: add r5, r0, r3
    mov r7, r1
    movs r12, #0
    vmov s16, r12
    vmov s24, r12
    \block MUL8
    cmp r7, r6
    beq 30f
20: \block MULADD8
    cmp r7, r6
    bne 20b
30: cmp r2, #0
    bne 50f
40: vadd.f32 s16, s16, s20
    vadd.f32 s18, s18, s22
    vadd.f32 s17, s17, s21
    vadd.f32 s19, s19, s23
    vadd.f32 s24, s24, s28
    vadd.f32 s26, s26, s30
    vadd.f32 s25, s25, s29
    vadd.f32 s27, s27, s31
    vadd.f32 s16, s16, s18
    vadd.f32 s17, s17, s19
    vadd.f32 s24, s24, s26
    vadd.f32 s25, s25, s27
    ldr r12, [sp, #208]
    vadd.f32 s16, s16, s17
    vadd.f32 s17, s24, s25
    vstmia r4!, {s16-s17}
    add r0, r5, r11
    cmp r4, r12
    bne 10b
    add sp, sp, #104
    vpop {s16-s31}
    pop {r4-r11, pc}
50: bmi 60f
    mov r7, sp
    add r8, sp, #32
    lsl r9, r2, #\shift
51: ldr r10, [r0], #4
    ldr r12, [r5], #4
    str r12, [r8, #32]
    str r10, [r8], #4
    subs r9, r9, #4
    bne 51b
    strd r5, r6, [sp, #96]
    add r0, sp, #32
    add r5, sp, #64
    mov r6, r0
    rsbs r2, r2, #0
    b 20b
60: ldrd r5, r6, [sp, #96]
    rsbs r2, r2, #0
    b 40b
    .size \name, . - \name
.endm

    MATVEC dmexp_m4f_matvec_f32, 2, BLOCK_F32
    MATVEC dmexp_m4f_matvec_f16, 1, BLOCK_F16
    MATVEC dmexp_m4f_matvec_bf16, 1, BLOCK_BF16
