@ Kernels for cores with the FPv4-SP floating-point unit or more (Cortex-M4F, M7F, M33F, M55). Called through cortex_m4f.rs, which checks every length.
@
@ vmla and vmls are not fused on these cores: the product is rounded, then the sum, so the bits are those of a multiplication and an addition.
@ They are taken instead of the two-instruction form because instructions a token are the primary mark: 16 instead of 32 for every 16 products.
@ (By the cost table in boards/plugin the two-instruction form would need about a fifth fewer cycles; public timings of vmla disagree, 1 to 3.)
@
@ Registers: s0-s15 and r0-r3, r12 are free for use; the others are saved.

    .syntax unified
    .thumb
    .fpu fpv4-sp-d16

.macro FUNCTION name
    .section .text.\name, "ax", %progbits
    .p2align 2
    .global \name
    .hidden \name
    .type \name, %function
    .thumb_func
\name:
.endm

@ a = a + w * s0..s7, lane by lane
.macro MULADD8 a0, a1, a2, a3, a4, a5, a6, a7, w0, w1, w2, w3, w4, w5, w6, w7
    vmla.f32 \a0, \w0, s0
    vmla.f32 \a1, \w1, s1
    vmla.f32 \a2, \w2, s2
    vmla.f32 \a3, \w3, s3
    vmla.f32 \a4, \w4, s4
    vmla.f32 \a5, \w5, s5
    vmla.f32 \a6, \w6, s6
    vmla.f32 \a7, \w7, s7
.endm

.macro MULADD4 a0, a1, a2, a3, w0, w1, w2, w3
    vmla.f32 \a0, \w0, s0
    vmla.f32 \a1, \w1, s1
    vmla.f32 \a2, \w2, s2
    vmla.f32 \a3, \w3, s3
.endm

@ Elements of a row, widened. The f32 forms leave element i in s(8+i); the 16-bit forms leave the even ones in s12-s15 and the odd ones in s8-s11.
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

@ Two bfloat16 of one word into \even and \even + 1.
.macro LOAD2_BF16 p, even, odd
    ldr r12, [\p], #4
    lsl lr, r12, #16
    bfc r12, #0, #16
    vmov \even, \odd, lr, r12
.endm

@ Four of two words.
.macro LOAD4_BF16 p, a0, a1, a2, a3
    ldrd r9, r12, [\p], #8
    lsl lr, r9, #16
    bfc r9, #0, #16
    vmov \a0, \a1, lr, r9
    lsl lr, r12, #16
    bfc r12, #0, #16
    vmov \a2, \a3, lr, r12
.endm

.macro LOAD8_BF16 p
    LOAD4_BF16 \p, s8, s9, s10, s11
    LOAD4_BF16 \p, s12, s13, s14, s15
.endm

@ Eight elements of both rows (pointers r0 and r5) times eight of x (pointer r7).
.macro BLOCK_F32
    vldmia r7!, {s0-s7}
    vldmia r0!, {s8-s15}
    MULADD8 s16, s17, s18, s19, s20, s21, s22, s23, s8, s9, s10, s11, s12, s13, s14, s15
    vldmia r5!, {s8-s15}
    MULADD8 s24, s25, s26, s27, s28, s29, s30, s31, s8, s9, s10, s11, s12, s13, s14, s15
.endm

.macro BLOCK_F16
    vldmia r7!, {s0-s7}
    LOAD8_F16 r0
    MULADD8 s16, s17, s18, s19, s20, s21, s22, s23, s12, s8, s13, s9, s14, s10, s15, s11
    LOAD8_F16 r5
    MULADD8 s24, s25, s26, s27, s28, s29, s30, s31, s12, s8, s13, s9, s14, s10, s15, s11
.endm

.macro BLOCK_BF16
    vldmia r7!, {s0-s7}
    LOAD8_BF16 r0
    MULADD8 s16, s17, s18, s19, s20, s21, s22, s23, s8, s9, s10, s11, s12, s13, s14, s15
    LOAD8_BF16 r5
    MULADD8 s24, s25, s26, s27, s28, s29, s30, s31, s8, s9, s10, s11, s12, s13, s14, s15
.endm

@ What is left of both rows: four elements into lanes 0-3, two or one into the lanes named.
.macro FOUR_F32
    vldmia r7!, {s0-s3}
    vldmia r0!, {s8-s11}
    vldmia r5!, {s12-s15}
    MULADD4 s16, s17, s18, s19, s8, s9, s10, s11
    MULADD4 s24, s25, s26, s27, s12, s13, s14, s15
.endm

.macro TWO_F32 a0, a1, b0, b1
    vldmia r7!, {s0-s1}
    vldmia r0!, {s8-s9}
    vldmia r5!, {s10-s11}
    vmla.f32 \a0, s8, s0
    vmla.f32 \a1, s9, s1
    vmla.f32 \b0, s10, s0
    vmla.f32 \b1, s11, s1
.endm

.macro ONE_F32 a0, b0
    vldmia r7!, {s0}
    vldmia r0!, {s8}
    vldmia r5!, {s9}
    vmla.f32 \a0, s8, s0
    vmla.f32 \b0, s9, s0
.endm

.macro FOUR_F16
    vldmia r7!, {s0-s3}
    vldmia r0!, {s8-s9}
    vldmia r5!, {s10-s11}
    vcvtb.f32.f16 s12, s8
    vcvtt.f32.f16 s8, s8
    vcvtb.f32.f16 s13, s9
    vcvtt.f32.f16 s9, s9
    vcvtb.f32.f16 s14, s10
    vcvtt.f32.f16 s10, s10
    vcvtb.f32.f16 s15, s11
    vcvtt.f32.f16 s11, s11
    MULADD4 s16, s17, s18, s19, s12, s8, s13, s9
    MULADD4 s24, s25, s26, s27, s14, s10, s15, s11
.endm

.macro TWO_F16 a0, a1, b0, b1
    vldmia r7!, {s0-s1}
    vldmia r0!, {s8}
    vldmia r5!, {s10}
    vcvtb.f32.f16 s9, s8
    vcvtt.f32.f16 s8, s8
    vcvtb.f32.f16 s11, s10
    vcvtt.f32.f16 s10, s10
    vmla.f32 \a0, s9, s0
    vmla.f32 \a1, s8, s1
    vmla.f32 \b0, s11, s0
    vmla.f32 \b1, s10, s1
.endm

.macro FOUR_BF16
    vldmia r7!, {s0-s3}
    LOAD4_BF16 r0, s8, s9, s10, s11
    LOAD4_BF16 r5, s12, s13, s14, s15
    MULADD4 s16, s17, s18, s19, s8, s9, s10, s11
    MULADD4 s24, s25, s26, s27, s12, s13, s14, s15
.endm

.macro TWO_BF16 a0, a1, b0, b1
    vldmia r7!, {s0-s1}
    LOAD2_BF16 r0, s8, s9
    LOAD2_BF16 r5, s10, s11
    vmla.f32 \a0, s8, s0
    vmla.f32 \a1, s9, s1
    vmla.f32 \b0, s10, s0
    vmla.f32 \b1, s11, s1
.endm

@ Rows of 16-bit elements come here with an even length only.
.macro ONE_NEVER a0, b0
.endm

@ void f(const T *w, const float *x, size_t n, size_t stride, float *out, float *out_end)
@ out[r] = dot8(w + r * stride bytes, x) for an even number of rows, two at a time, eight lanes each: s16-s23 and s24-s31.
@ r0, r5 rows; r7 x; r1 its start, r6 the end of its whole blocks; r2 n & 7; r3 stride; r4, r8 out and its end;
@ r9 where the loop of blocks (four for f32; one for the others, which are long already) is entered so that it comes out even; r10 sixteen zeros; r11 from the end of a row to the start of the next.
.macro MATVEC name, shift, block, four, two, one, unrolled
    FUNCTION \name
    push {r4-r11, lr}
    vpush {s16-s31}
    ldr r4, [sp, #100]
    ldr r8, [sp, #104]
    lsr r5, r2, #3
    add r6, r1, r5, lsl #5
.if \unrolled
    and r9, r5, #3
    cmp r5, #0
    it eq
    moveq r9, #4
    adr r10, 90f
    ldr r9, [r10, r9, lsl #2]
    add r9, r9, r10
.endif
    sub r11, r3, r2, lsl #\shift
    and r2, r2, #7
    adr r10, 91f
10: add r5, r0, r3
    mov r7, r1
    vldmia r10, {s16-s31}
.if \unrolled
    bx r9
.else
    cmp r7, r6
    beq 30f
.endif
20:
.if \unrolled
    \block
21: \block
22: \block
23:
.endif
    \block
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
    vadd.f32 s16, s16, s17
    vadd.f32 s17, s24, s25
    vstmia r4!, {s16-s17}
    add r0, r5, r11
    cmp r4, r8
    bne 10b
    vpop {s16-s31}
    pop {r4-r11, pc}
    @ carry = bit 2 of n, minus = bit 1, zero = neither bit 1 nor bit 0
50: lsls r12, r2, #30
    bcc 53f
    \four
    bpl 52f
    \two s20, s21, s28, s29
    tst r2, #1
    beq 40b
    \one s22, s30
    b 40b
52: beq 40b
    \one s20, s28
    b 40b
53: bpl 54f
    \two s16, s17, s24, s25
    tst r2, #1
    beq 40b
    \one s18, s26
    b 40b
54: \one s16, s24
    b 40b
    .p2align 2
.if \unrolled
90: .word 20b - 90b + 1
    .word 23b - 90b + 1
    .word 22b - 90b + 1
    .word 21b - 90b + 1
    .word 30b - 90b + 1
.endif
91: .zero 64
    .size \name, . - \name
.endm

    MATVEC dmexp_m4f_matvec_f32, 2, BLOCK_F32, FOUR_F32, TWO_F32, ONE_F32, 1
    MATVEC dmexp_m4f_matvec_f16, 1, BLOCK_F16, FOUR_F16, TWO_F16, ONE_NEVER, 0
    MATVEC dmexp_m4f_matvec_bf16, 1, BLOCK_BF16, FOUR_BF16, TWO_BF16, ONE_NEVER, 0

.macro ADD8 a0, a1, a2, a3, a4, a5, a6, a7, b0, b1, b2, b3, b4, b5, b6, b7
    vadd.f32 \a0, \a0, \b0
    vadd.f32 \a1, \a1, \b1
    vadd.f32 \a2, \a2, \b2
    vadd.f32 \a3, \a3, \b3
    vadd.f32 \a4, \a4, \b4
    vadd.f32 \a5, \a5, \b5
    vadd.f32 \a6, \a6, \b6
    vadd.f32 \a7, \a7, \b7
.endm

@ Eight stored elements at \p times s16, added to s0-s7.
.macro WEIGH8 w0, w1, w2, w3, w4, w5, w6, w7
    vmla.f32 s0, \w0, s16
    vmla.f32 s1, \w1, s16
    vmla.f32 s2, \w2, s16
    vmla.f32 s3, \w3, s16
    vmla.f32 s4, \w4, s16
    vmla.f32 s5, \w5, s16
    vmla.f32 s6, \w6, s16
    vmla.f32 s7, \w7, s16
.endm

.macro WEIGH_F32
    vldmia r0, {s8-s15}
    WEIGH8 s8, s9, s10, s11, s12, s13, s14, s15
.endm

.macro WEIGH_F16
    mov r12, r0
    LOAD8_F16 r12
    WEIGH8 s12, s8, s13, s9, s14, s10, s15, s11
.endm

@ void f(const T *v, const float *weights, const float *weights_end, size_t stride, float lanes[8][8], float *first_lane, float out[8])
@ out[j] = sum8 over t of weights[t] * v[t * stride bytes + j] for eight columns; first_lane points into lanes, at the lane of weights[0].
@ r4, r6 lanes and their end; r5 the current lane; r8 the weight at which the lanes begin anew or the weights end.
.macro MIX name, weigh
    FUNCTION \name
    push {r4-r8, lr}
    vpush {s16-s31}
    ldr r4, [sp, #88]
    ldr r5, [sp, #92]
    ldr r7, [sp, #96]
    adr r12, 91f
    vldmia r12, {s0-s15}
    mov r6, r4
    vstmia r6!, {s0-s15}
    vstmia r6!, {s0-s15}
    vstmia r6!, {s0-s15}
    vstmia r6!, {s0-s15}
10: sub r8, r6, r5
    add r8, r1, r8, lsr #3
    cmp r8, r2
    it hi
    movhi r8, r2
20: vldmia r1!, {s16}
    vldmia r5, {s0-s7}
    \weigh
    add r0, r0, r3
    vstmia r5!, {s0-s7}
    cmp r1, r8
    bne 20b
    mov r5, r4
    cmp r1, r2
    bne 10b
    add r5, r4, #128
    vldmia r4!, {s0-s15}
    vldmia r5!, {s16-s31}
    ADD8 s0, s1, s2, s3, s4, s5, s6, s7, s16, s17, s18, s19, s20, s21, s22, s23
    ADD8 s8, s9, s10, s11, s12, s13, s14, s15, s24, s25, s26, s27, s28, s29, s30, s31
    vldmia r4!, {s16-s23}
    vldmia r5!, {s24-s31}
    ADD8 s16, s17, s18, s19, s20, s21, s22, s23, s24, s25, s26, s27, s28, s29, s30, s31
    ADD8 s0, s1, s2, s3, s4, s5, s6, s7, s16, s17, s18, s19, s20, s21, s22, s23
    vldmia r4!, {s16-s23}
    vldmia r5!, {s24-s31}
    ADD8 s16, s17, s18, s19, s20, s21, s22, s23, s24, s25, s26, s27, s28, s29, s30, s31
    ADD8 s8, s9, s10, s11, s12, s13, s14, s15, s16, s17, s18, s19, s20, s21, s22, s23
    ADD8 s0, s1, s2, s3, s4, s5, s6, s7, s8, s9, s10, s11, s12, s13, s14, s15
    vstmia r7, {s0-s7}
    vpop {s16-s31}
    pop {r4-r8, pc}
    .p2align 2
91: .zero 64
    .size \name, . - \name
.endm

    MIX dmexp_m4f_mix_f32, WEIGH_F32
    MIX dmexp_m4f_mix_f16, WEIGH_F16

@ The exponential of s0, which is within the range where no case is special; the two words to be added (the first shifted by 23) come to r12 and r3. Takes s0-s2.
@ s16 log2 e, s17 magic, s18-s19 ln 2, s20-s23 the coefficients of r^6 .. r^3, s24 1/2, s25 1: math.rs, step by step.
.macro EXP
    vmul.f32 s1, s0, s16
    vadd.f32 s1, s1, s17
    vsub.f32 s2, s1, s17
    vmls.f32 s0, s2, s18
    vmls.f32 s0, s2, s19
    vmul.f32 s2, s0, s20
    vadd.f32 s2, s2, s21
    vmul.f32 s2, s2, s0
    vadd.f32 s2, s2, s22
    vmul.f32 s2, s2, s0
    vadd.f32 s2, s2, s23
    vmul.f32 s2, s2, s0
    vadd.f32 s2, s2, s24
    vmul.f32 s2, s2, s0
    vadd.f32 s2, s2, s25
    vmul.f32 s2, s2, s0
    vadd.f32 s2, s2, s25
    vmov r12, r3, s1, s2
    add r3, r3, r12, lsl #23
.endm

@ float *f(float *values, float *end, const float constants[12], float largest)
@ Each value becomes exp(value - largest); stops at the first below the range or NaN and returns where. constants[10] is the lowest of the range.
    FUNCTION dmexp_m4f_exp_minus
    vpush {s16-s27}
    vldmia r2, {s16-s26}
    vmov.f32 s27, s0
10: vldr s0, [r0]
    vsub.f32 s0, s0, s27
    vcmp.f32 s0, s26
    vmrs APSR_nzcv, fpscr
    blt 20f
    EXP
    str r3, [r0], #4
    cmp r0, r1
    bne 10b
20: vpop {s16-s27}
    bx lr
    .size dmexp_m4f_exp_minus, . - dmexp_m4f_exp_minus

@ float *f(float *gate, float *end, const float constants[12], const float *up)
@ gate[i] = silu(gate[i]) * up[i]; stops at the first beyond the range or NaN and returns where. constants[11] is the end of the range on both sides.
    FUNCTION dmexp_m4f_gate
    push {r4, lr}
    vpush {s16-s27}
    vldmia r2, {s16-s27}
    mov r4, r3
10: vldr s3, [r0]
    vabs.f32 s0, s3
    vcmp.f32 s0, s27
    vmrs APSR_nzcv, fpscr
    bpl 20f
    vneg.f32 s0, s3
    EXP
    vmov s2, r3
    vadd.f32 s2, s2, s25
    vdiv.f32 s3, s3, s2
    vldmia r4!, {s4}
    vmul.f32 s3, s3, s4
    vstmia r0!, {s3}
    cmp r0, r1
    bne 10b
20: vpop {s16-s27}
    pop {r4, pc}
    .size dmexp_m4f_gate, . - dmexp_m4f_gate

.macro SQUARES8
    vmla.f32 s0, s8, s8
    vmla.f32 s1, s9, s9
    vmla.f32 s2, s10, s10
    vmla.f32 s3, s11, s11
    vmla.f32 s4, s12, s12
    vmla.f32 s5, s13, s13
    vmla.f32 s6, s14, s14
    vmla.f32 s7, s15, s15
.endm

.macro TERMS8
    ADD8 s0, s1, s2, s3, s4, s5, s6, s7, s8, s9, s10, s11, s12, s13, s14, s15
.endm

@ float f(const float *x, size_t n): the canonical sum of n values, or of their squares. The last block is filled up with zeros, which change no lane: none is ever -0.
.macro SUM name, add
    FUNCTION \name
    adr r3, 91f
    vldmia r3, {s0-s7}
    subs r1, r1, #8
    blo 20f
10: vldmia r0!, {s8-s15}
    \add
    subs r1, r1, #8
    bhs 10b
20: vldmia r3, {s8-s15}
    mvns r1, r1
    lsls r1, r1, #29
    lsrs r1, r1, #27
    add pc, r1
    nop
    vldr s14, [r0, #24]
    vldr s13, [r0, #20]
    vldr s12, [r0, #16]
    vldr s11, [r0, #12]
    vldr s10, [r0, #8]
    vldr s9, [r0, #4]
    vldr s8, [r0]
    \add
    vadd.f32 s0, s0, s4
    vadd.f32 s2, s2, s6
    vadd.f32 s1, s1, s5
    vadd.f32 s3, s3, s7
    vadd.f32 s0, s0, s2
    vadd.f32 s1, s1, s3
    vadd.f32 s0, s0, s1
    bx lr
    .p2align 2
91: .zero 32
    .size \name, . - \name
.endm

    SUM dmexp_m4f_sum8, TERMS8
    SUM dmexp_m4f_sum8_squares, SQUARES8

@ void f(float *x, float *end, const float *y): x[i] = x[i] + y[i], four at a time.
    FUNCTION dmexp_m4f_add
10: vldmia r0, {s0-s3}
    vldmia r2!, {s4-s7}
    vadd.f32 s0, s0, s4
    vadd.f32 s1, s1, s5
    vadd.f32 s2, s2, s6
    vadd.f32 s3, s3, s7
    vstmia r0!, {s0-s3}
    cmp r0, r1
    bne 10b
    bx lr
    .size dmexp_m4f_add, . - dmexp_m4f_add

@ void f(float *x, float *end, float divisor): x[i] = x[i] / divisor, four at a time.
    FUNCTION dmexp_m4f_divide
    vmov.f32 s4, s0
10: vldmia r0, {s0-s3}
    vdiv.f32 s0, s0, s4
    vdiv.f32 s1, s1, s4
    vdiv.f32 s2, s2, s4
    vdiv.f32 s3, s3, s4
    vstmia r0!, {s0-s3}
    cmp r0, r1
    bne 10b
    bx lr
    .size dmexp_m4f_divide, . - dmexp_m4f_divide

@ void f(float *out, float *end, const float *x, const float *gain, float scale): out[i] = (x[i] * scale) * gain[i], four at a time.
    FUNCTION dmexp_m4f_norm
    vmov.f32 s8, s0
10: vldmia r2!, {s0-s3}
    vldmia r3!, {s4-s7}
    vmul.f32 s0, s0, s8
    vmul.f32 s1, s1, s8
    vmul.f32 s2, s2, s8
    vmul.f32 s3, s3, s8
    vmul.f32 s0, s0, s4
    vmul.f32 s1, s1, s5
    vmul.f32 s2, s2, s6
    vmul.f32 s3, s3, s7
    vstmia r0!, {s0-s3}
    cmp r0, r1
    bne 10b
    bx lr
    .size dmexp_m4f_norm, . - dmexp_m4f_norm

@ uint32_t f(const float *x, const float *end): the bits of the largest magnitude; four at a time.
    FUNCTION dmexp_m4f_largest
    push {r4-r5, lr}
    movs r2, #0
10: ldmia r0!, {r3-r5, r12}
    .irp value, r3, r4, r5, r12
    cmp r2, \value, lsl #1
    it lo
    lsllo r2, \value, #1
    .endr
    cmp r0, r1
    bne 10b
    lsrs r0, r2, #1
    pop {r4-r5, pc}
    .size dmexp_m4f_largest, . - dmexp_m4f_largest

@ float f(float *scores, float *end, float scale, float largest): each score times the scale, four at a time; the largest of them and of what came.
    FUNCTION dmexp_m4f_scale
    vmov.f32 s4, s0
    vmov.f32 s0, s1
10: vldmia r0, {s5-s8}
    .irp score, s5, s6, s7, s8
    vmul.f32 \score, \score, s4
    vcmp.f32 \score, s0
    vmrs APSR_nzcv, fpscr
    it gt
    vmovgt.f32 s0, \score
    .endr
    vstmia r0!, {s5-s8}
    cmp r0, r1
    bne 10b
    bx lr
    .size dmexp_m4f_scale, . - dmexp_m4f_scale

@ float f(float): the IEEE square root
    FUNCTION dmexp_m4f_sqrt
    vsqrt.f32 s0, s0
    bx lr
    .size dmexp_m4f_sqrt, . - dmexp_m4f_sqrt

@ float f(uint32_t): the value of the half-precision pattern in the low bits
    FUNCTION dmexp_m4f_widen_f16
    vmov s0, r0
    vcvtb.f32.f16 s0, s0
    bx lr
    .size dmexp_m4f_widen_f16, . - dmexp_m4f_widen_f16

@ void f(uint16_t *to, const float *from, const float *from_end): narrowed to nearest even
    FUNCTION dmexp_m4f_narrow_f16
10: vldmia r1!, {s0}
    vcvtb.f16.f32 s0, s0
    vmov r3, s0
    strh r3, [r0], #2
    cmp r1, r2
    bne 10b
    bx lr
    .size dmexp_m4f_narrow_f16, . - dmexp_m4f_narrow_f16

    .text
