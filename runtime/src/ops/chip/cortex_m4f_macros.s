@ What the kernels for cores with the FPv4-SP floating-point unit or more (Cortex-M4F, M7F, M33F, M55) are made of. Called through cortex_m4f.rs, which checks every length.
@
@ A multiplication and an addition, each rounded, are one instruction (vmla, which is not fused on these cores) or two, with the same bits: SPLIT says which. One is fewer
@ instructions; two are fewer cycles by Arm's manual of the Cortex-M4, where vmla takes 3 and each of the two takes 1. All products come before all sums: a result that the
@ next instruction needs takes one cycle more there.
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

@ a = a + w * x for two, four and eight; the weights may be lost.
.macro MULADD2 a0, a1, w0, w1, x0, x1
.if SPLIT
    vmul.f32 \w0, \w0, \x0
    vmul.f32 \w1, \w1, \x1
    vadd.f32 \a0, \a0, \w0
    vadd.f32 \a1, \a1, \w1
.else
    vmla.f32 \a0, \w0, \x0
    vmla.f32 \a1, \w1, \x1
.endif
.endm

.macro MULADD4 a0, a1, a2, a3, w0, w1, w2, w3, x0, x1, x2, x3
.if SPLIT
    vmul.f32 \w0, \w0, \x0
    vmul.f32 \w1, \w1, \x1
    vmul.f32 \w2, \w2, \x2
    vmul.f32 \w3, \w3, \x3
    vadd.f32 \a0, \a0, \w0
    vadd.f32 \a1, \a1, \w1
    vadd.f32 \a2, \a2, \w2
    vadd.f32 \a3, \a3, \w3
.else
    vmla.f32 \a0, \w0, \x0
    vmla.f32 \a1, \w1, \x1
    vmla.f32 \a2, \w2, \x2
    vmla.f32 \a3, \w3, \x3
.endif
.endm

@ a = a + w * s0..s7, lane by lane.
.macro MULADD8 a0, a1, a2, a3, a4, a5, a6, a7, w0, w1, w2, w3, w4, w5, w6, w7
    MULADD4 \a0, \a1, \a2, \a3, \w0, \w1, \w2, \w3, s0, s1, s2, s3
    MULADD4 \a4, \a5, \a6, \a7, \w4, \w5, \w6, \w7, s4, s5, s6, s7
.endm

@ The same where the sums begin: a0 is +0, the others are whatever they are. A sum of products from +0 on is never -0, and for that one lane is enough.
.macro MUL8 a0, a1, a2, a3, a4, a5, a6, a7, w0, w1, w2, w3, w4, w5, w6, w7
.if SPLIT
    vmul.f32 \w0, \w0, s0
.else
    vmla.f32 \a0, \w0, s0
.endif
    vmul.f32 \a1, \w1, s1
    vmul.f32 \a2, \w2, s2
    vmul.f32 \a3, \w3, s3
    vmul.f32 \a4, \w4, s4
    vmul.f32 \a5, \w5, s5
    vmul.f32 \a6, \w6, s6
    vmul.f32 \a7, \w7, s7
.if SPLIT
    vadd.f32 \a0, \a0, \w0
.endif
.endm

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
