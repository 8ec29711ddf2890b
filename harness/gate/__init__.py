"""`tritmark gate BASE HEAD`: did a change make kernels slower, and would one believe that?"""
