@ Attention over keys and values in 8 bits on cores with the DSP instructions; the macros are those of cortex_m_dsp.s. Called through cortex_m_kv.rs, which checks every length.

@ float f(const int8_t *keys, const uint16_t *scales, const int16_t *q, const int16_t *q_end, size_t gap, size_t scale_stride, float *scores, float *end, float q_scale, float scale,
@         float largest)
@ scores[t] = (f32(sum of q * keys) * (q_scale * scales[t])) * scale; returns the largest of them and of what came. q is in the order for q8, a number of eights; gap is from the end of a key to
@ the next.
@ r0 keys; r1 scales; r2 q, r3 its end; lr in q; r4-r7 eight of q; r8, r9 of a key; r10 scratch; r11 scores; r12 the sum.
    DSP_FUNCTION dmexp_dsp_scores
    push {r4-r11, lr}
    add r12, sp, #36
    vldmia r12, {s6-s9}
    vmov r11, s8
10: mov lr, r2
    movs r12, #0
20: ldmia lr!, {r4-r7}
    ldrd r8, r9, [r0], #8
    FOUR_Q8 r12, r8, r4, r5
    FOUR_Q8 r12, r9, r6, r7
    cmp lr, r3
    bne 20b
    ldrh r8, [r1]
    vmov s4, s5, r8, r12
    vcvtb.f32.f16 s4, s4
    vcvt.f32.s32 s5, s5
    vmul.f32 s4, s4, s0
    vmov r4, r5, s6, s7
    vmul.f32 s4, s4, s5
    add r0, r0, r4
    add r1, r1, r5
    vmul.f32 s4, s4, s1
    vmov r6, s9
    vcmp.f32 s4, s2
    vmrs APSR_nzcv, fpscr
    it gt
    vmovgt.f32 s2, s4
    vstmia r11!, {s4}
    cmp r11, r6
    bne 10b
    vmov.f32 s0, s2
    pop {r4-r11, pc}
    .size dmexp_dsp_scores, . - dmexp_dsp_scores

@ uint32_t f(float *weights, float *end, const uint16_t *scales, size_t scale_stride): each weight times its scale; twice the bits of the largest magnitude.
    DSP_FUNCTION dmexp_dsp_weigh
    push {r4, lr}
    movs r4, #0
10: ldrh r12, [r2]
    vldr s0, [r0]
    vmov s1, r12
    vcvtb.f32.f16 s1, s1
    add r2, r2, r3
    vmul.f32 s0, s0, s1
    vmov r12, s0
    cmp r4, r12, lsl #1
    it lo
    lsllo r4, r12, #1
    str r12, [r0], #4
    cmp r0, r1
    bne 10b
    mov r0, r4
    pop {r4, pc}
    .size dmexp_dsp_weigh, . - dmexp_dsp_weigh

@ void f(float *weights, float *end, float inverse): each weight becomes a word, the nearest integer of weight * inverse.
    DSP_FUNCTION dmexp_dsp_codes
10: vldr s1, [r0]
    vmul.f32 s1, s1, s0
    vcvtr.s32.f32 s1, s1
    vstmia r0!, {s1}
    cmp r0, r1
    bne 10b
    bx lr
    .size dmexp_dsp_codes, . - dmexp_dsp_codes

@ Four columns of a row (\place bytes past r0) times the low half of r2, added to their sums.
.macro FOUR_COLUMNS place, a0, a1, a2, a3
    ldr r12, [r0, #\place]
    sxtb16 lr, r12
    sxtb16 r12, r12, ror #8
    smlabb \a0, lr, r2, \a0
    smlatb \a2, lr, r2, \a2
    smlabb \a1, r12, r2, \a1
    smlatb \a3, r12, r2, \a3
.endm

@ void f(const int8_t *values, const int32_t *codes, const int32_t *end, size_t stride, int32_t sums[8]): sums[j] = sum over t of codes[t] * values[t * stride + j].
@ r0 values; r1 codes; r2 a code; r3 stride; r4-r11 sums; r12, lr scratch.
    DSP_FUNCTION dmexp_dsp_columns
    push {r2, r4-r11, lr}
    movs r4, #0
    movs r5, #0
    movs r6, #0
    movs r7, #0
    mov r8, r4
    mov r9, r4
    mov r10, r4
    mov r11, r4
10: ldr r2, [r1], #4
    FOUR_COLUMNS 0, r4, r5, r6, r7
    FOUR_COLUMNS 4, r8, r9, r10, r11
    ldr r12, [sp]
    add r0, r0, r3
    cmp r1, r12
    bne 10b
    ldr r12, [sp, #40]
    stmia r12!, {r4-r11}
    pop {r2, r4-r11, pc}
    .size dmexp_dsp_columns, . - dmexp_dsp_columns
